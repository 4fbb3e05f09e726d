"""The contract suite itself: run over our stores, and shown to catch broken ones."""
