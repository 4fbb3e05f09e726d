"""The stores under the real runtime: real clients and agents, a scripted model, a new process."""
