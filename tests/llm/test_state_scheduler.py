"""Test which tokens steps compute where a model keeps states, on simulated slots: each has taken in what it should."""

import random
from collections import Counter

import pytest
from simulated_steps import SimulatedSteps, alone

from isokern.llm.pages import SlotPool
from isokern.llm.request import CANCELLED, FAILED, LENGTH, Request
from isokern.llm.state_scheduler import StateScheduler
from isokern.llm.turns import NO_SLOT


def request(prompt, most=4, priority=0):
    return Request(list(prompt), most, None, priority=priority)


class Simulation(SimulatedSteps):
    """A scheduler whose steps read all slots, and then write the tokens that each sequence has taken in."""

    def __init__(self, batch=3, more=2, tokens=8, single=False):
        self.pool = SlotPool(batch + more)
        self.scheduler = StateScheduler(self.pool, tokens, batch, single)
        self.slots = {}
        self.computed = Counter()

    def step(self, fail=False):
        """Run one step, check what it reads and writes, and give each text that is read a token."""
        scheduler = self.scheduler
        parts = scheduler.plan()
        assert parts or not (scheduler.running or scheduler.waiting), "somebody waits for nothing"
        assert sum(parts.values()) <= scheduler.tokens and sum(count > 1 for count in parts.values()) <= 1
        assert set(parts) <= set(scheduler.running) and len(scheduler.running) <= scheduler.batch
        assert not scheduler.single or set(parts.values()) <= {1}
        slots = [state.slot for state in parts]
        assert len(set(slots)) == len(slots), "two write the same slot"
        for state in parts:
            read = () if state.source == NO_SLOT else self.slots[state.source]
            assert read == tuple(state.tokens[: state.computed]), "a sequence reads what belongs to another"
        for state, count in parts.items():
            assert 1 <= count <= state.pending
            self.slots[state.slot] = ("broken",) if fail else tuple(state.tokens[: state.computed + count])
            self.computed[state.request] += count
        for state, count in parts.items():
            if fail:
                scheduler.finish(state, FAILED, RuntimeError())
                continue
            complete = count == state.pending
            scheduler.commit(state, count)
            if complete:
                token = hash(tuple(state.tokens)) % 3
                state.tokens.append(token)
                state.request.add(token)
                if len(state.request.tokens) == state.request.most:
                    scheduler.finish(state, LENGTH)
        self.check()
        return [state.request for state in parts]

    def check(self):
        """Check who holds which slots, and that those whose content is known have it."""
        held = Counter(state.slot for state in self.scheduler.running if state.slot != NO_SLOT)
        assert [held[slot] for slot in range(self.pool.count)] == self.pool.holders
        assert len(held) + self.pool.available == self.pool.count
        assert all(state.slot == NO_SLOT and not state.computed for state in self.scheduler.waiting)
        for (_, tokens), slot in self.pool._known.items():
            assert self.slots[slot] == tokens, "a slot is known for what it has not"


@pytest.mark.parametrize("seed", range(60))
def test_random_requests_read_their_own_and_all_end(seed):
    rng = random.Random(seed)
    batch = rng.randint(1, 5)
    simulation = Simulation(batch, rng.choice([0, 1, 3, 8]), batch + rng.randint(0, 12), single=seed % 4 == 0)
    asked, stems = [], [[rng.randrange(3) for _ in range(150)] for _ in range(3)]
    for _ in range(300):
        if rng.random() < 0.3 and len(asked) < 60:
            prompt = rng.choice(stems)[: rng.randint(1, 150)] + [rng.randrange(3) for _ in range(rng.randint(0, 3))]
            for _ in range(rng.choice([1, 1, 3])):
                made = request(prompt, rng.randint(1, 12), rng.choice([0, 0, 0, 1, -2]))
                asked.append(made)
                simulation.scheduler.add(made)
        if rng.random() < 0.1 and asked:
            rng.choice(asked).cancel()
        simulation.step(fail=rng.random() < 0.02)
    simulation.run()
    assert any(made.reason == LENGTH for made in asked)
    for made in asked:
        right = alone(made.prompt, made.most)
        assert made.reason in (LENGTH, CANCELLED, FAILED) and made.tokens == right[: len(made.tokens)]
        assert made.reason != LENGTH or made.tokens == right


def test_requests_with_one_prompt_read_it_once():
    simulation = Simulation(batch=4, more=2, tokens=8)
    prompt = [n % 3 for n in range(21)]
    asked = [request(prompt, 3) for _ in range(6)]
    for made in asked:
        simulation.scheduler.add(made)
    simulation.run()
    assert [made.cached for made in asked] == [0, 20, 20, 20, 20, 20]
    assert sum(simulation.computed.values()) == 20 + 6 * 3


def test_slots_of_long_prompts_are_few():
    simulation = Simulation(batch=1, more=40, tokens=8)
    simulation.scheduler.add(request([n % 3 for n in range(2000)], 2))
    simulation.run()
    assert 3 <= len(simulation.pool._known) <= 6


def test_without_free_slots_the_oldest_beginning_goes():
    simulation = Simulation(batch=1, more=1, tokens=64)
    prompts = [[n] * 10 for n in range(3)]
    for prompt in (*prompts, prompts[2], prompts[0]):
        made = request([*prompt, 7, 8], 1)
        simulation.scheduler.add(made)
        simulation.run()
        assert simulation.pool.available == 2
    longer = request([*prompts[0], 7, 8, 9], 1)
    simulation.scheduler.add(longer)
    simulation.run()
    assert longer.cached == 12


def test_a_preempted_request_goes_on_from_its_slot():
    simulation = Simulation(batch=1, more=2, tokens=8)
    low, high = request(range(20), 6), request(range(30, 40), 3, priority=1)
    simulation.scheduler.add(low)
    for _ in range(4):
        simulation.step()
    simulation.scheduler.add(high)
    simulation.run()
    assert low.reason == high.reason == LENGTH and low.tokens == alone(range(20), 6)
    assert simulation.computed[low] == 20 + 5
