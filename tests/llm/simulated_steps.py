"""What simulations of both schedulers share: the texts of their requests, and running until nothing is left."""


def alone(prompt, most):
    """Return the text that a simulated request has."""
    tokens = list(prompt)
    for _ in range(most):
        tokens.append(hash(tuple(tokens)) % 3)
    return tokens[len(prompt) :]


class SimulatedSteps:
    """A simulation has `step`, which returns whether there was anything to do, a scheduler and its pool."""

    def run(self, most=10_000):
        """Run steps until nothing is left to do."""
        for _ in range(most):
            if not self.step():
                break
        assert not self.scheduler.running and not self.scheduler.waiting
        assert self.pool.available == self.pool.count
