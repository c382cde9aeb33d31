"""The data, weights and oracle of the demonstration that `isokern demo` runs."""
