"""The runtime's part of the conformance suite: memory, streams, capture, workspaces, claims, threads and processes."""
