"""The contract of a conversation store, as checks that any store can be put under."""
