"""The passes: a file each, `run(state) → state`. None changes a result by more than the operators' tolerances."""
