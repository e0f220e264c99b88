"""Steps that are done once: locks, markers, logs and resuming."""
