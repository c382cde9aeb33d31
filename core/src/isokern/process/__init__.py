"""What belongs to the whole process: locks that a forked child renews, and a hold on the collector."""
