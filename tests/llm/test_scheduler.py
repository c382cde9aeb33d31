"""Test which tokens an engine's steps compute, on a simulated cache: every page holds what its sequence needs."""

import random
from collections import Counter

import pytest
from simulated_steps import SimulatedSteps, alone

from isokern.llm.pages import ROOT, PagePool
from isokern.llm.request import CANCELLED, LENGTH, Request
from isokern.llm.scheduler import Scheduler, count_near
from isokern.llm.speculation import Lookup
from isokern.llm.turns import AHEAD


def request(prompt, most=4, priority=0):
    return Request(list(prompt), most, None, priority=priority)


class Simulation(SimulatedSteps):
    """A scheduler whose steps write what each position's token and all before it are, and read it again.

    With a window, `near` pages are for positions that it shows.
    """

    def __init__(self, pages=12, size=4, tokens=8, batch=3, drafts=0, near=0, window=0):
        self.pool, self.window = PagePool(pages, size), window
        self.near = PagePool(near, size) if near else None
        self.scheduler = Scheduler(self.pool, tokens, batch, drafts, self.near, window)
        self.slots, self.near_slots = {}, {}
        self.computed = Counter()

    def step(self):
        """Run one step, check what it reads, and give each text that is read a token; return who took part."""
        scheduler, size = self.scheduler, self.pool.size
        parts = scheduler.plan()
        assert parts or not (scheduler.running or scheduler.waiting), "somebody waits for nothing"
        assert sum(count + len(state.drafts) for state, count in parts.items()) <= scheduler.tokens
        assert set(parts) <= set(scheduler.running) and len(scheduler.running) <= scheduler.batch
        for state, count in parts.items():
            assert 1 <= count <= state.pending and len(state.drafts) <= scheduler.drafts
            tokens = [*state.tokens, *state.drafts]
            for at in range(state.computed, state.computed + count + len(state.drafts)):
                self.slots[state.pages[at // size], at % size] = tuple(tokens[: at + 1])
                if self.near:
                    self.near_slots[state.near[at // size - state.unseen], at % size] = tuple(tokens[: at + 1])
            self.computed[state.request] += count
        for state, count in parts.items():
            for at in range(state.computed + count):
                held = self.slots[state.pages[at // size], at % size]
                assert held == tuple(state.tokens[: at + 1]), "a sequence reads what belongs to another"
            for at in range(max(state.computed - self.window + 1, 0), state.computed + count) if self.near else ():
                assert at // size >= state.unseen, "a window shows what was given back"
                held = self.near_slots[state.near[at // size - state.unseen], at % size]
                assert held == tuple(state.tokens[: at + 1]), "a window shows what belongs to another"
        for state, count in parts.items():
            drafts, complete = [*state.drafts, None], count == state.pending
            scheduler.commit(state, count)
            for draft in drafts if complete else []:
                token = hash(tuple(state.tokens)) % 3
                state.tokens.append(token)
                state.request.add(token)
                if len(state.request.tokens) == state.request.most:
                    scheduler.finish(state, LENGTH)
                    break
                if token != draft:
                    break
                scheduler.commit(state, 1)
        self.check()
        return [state.request for state in parts]

    def check(self):
        """Check that pages have as many holders as sequences hold them, and are free, idle or held."""
        held = Counter(page for state in self.scheduler.running for page in state.pages)
        assert [held[page] for page in range(self.pool.count)] == self.pool.holders
        assert len(held) + self.pool.available == self.pool.count
        assert all(not state.pages and not state.near for state in self.scheduler.waiting)
        if self.near:
            most = count_near(self.window, self.scheduler.tokens, self.near.size)
            for state in self.scheduler.running:
                assert state.unseen + len(state.near) == len(state.pages) and len(state.near) <= most
            held = Counter(page for state in self.scheduler.running for page in state.near)
            assert [held[page] for page in range(self.near.count)] == self.near.holders
            assert len(held) + self.near.available == self.near.count


@pytest.mark.parametrize(
    ("seed", "windowed"), [*((n, False) for n in (*range(60), 736)), *((n, True) for n in range(40))]
)
def test_random_requests_read_their_own_and_all_end(seed, windowed):
    rng = random.Random(seed)
    batch, drafts = rng.randint(1, 4), seed % 3
    tokens = batch * (1 + drafts) + rng.randint(0, 12)
    pages, size = rng.randint(8, 30), rng.choice([1, 2, 4])
    window = rng.randint(1, 12) if windowed else 0
    most = min(count_near(window, tokens, size), pages) if windowed else 0  # of one sequence, which has to have room
    near = rng.randint(most, min(batch * most, pages)) if windowed else 0
    simulation = Simulation(pages, size, tokens, batch, drafts, near, window)
    room = simulation.pool.count * simulation.pool.size
    asked, stems = [], [[rng.randrange(3) for _ in range(40)] for _ in range(3)]
    for _ in range(300):
        if rng.random() < 0.3 and len(asked) < 60:
            prompt = rng.choice(stems)[: rng.randint(1, room)] + [rng.randrange(3) for _ in range(rng.randint(0, 3))]
            prompt = prompt[:room]
            most = rng.randint(1, max(1, min(12, room - len(prompt) + 1)))
            made = request(prompt, most, rng.choice([0, 0, 0, 1, -2]))
            asked.append(made)
            simulation.scheduler.add(made)
        if asked and rng.random() < 0.05:
            rng.choice(asked).cancel()
        simulation.step()
    simulation.run()
    for made in asked:
        assert made.reason in (LENGTH, CANCELLED)
        assert made.tokens == alone(made.prompt, made.most)[: len(made.tokens)]
        assert made.reason == CANCELLED or len(made.tokens) == made.most


def test_prompts_are_read_in_chunks_beside_texts_that_are_made():
    simulation = Simulation(tokens=5)
    first, second = request([1], 6), request(range(12), 1)
    simulation.scheduler.add(first)
    simulation.step()
    simulation.scheduler.add(second)
    for _ in range(3):
        assert simulation.step() == [first, second]
    assert len(first.tokens) == 4 and second.done
    assert simulation.computed[second] == 12


def test_what_begins_alike_is_computed_once():
    simulation = Simulation(pages=20, tokens=16, batch=4)
    stem = list(range(10, 22))
    for tail in ([1], [2, 3], [4]):
        simulation.scheduler.add(request([*stem, *tail], 2))
    last = request([*stem, 5], 2)
    simulation.scheduler.add(last)
    simulation.run()
    assert sum(simulation.computed.values()) == 13 + 2 + 1 + 1 + 4 * 1
    assert last.cached == 12
    again = request(stem, 1)  # the last token is computed even where all is known
    simulation.scheduler.add(again)
    simulation.run()
    assert simulation.computed[again] == 4 and again.cached == 8


def test_sequences_keep_the_pages_that_their_windows_show():
    simulation = Simulation(pages=20, size=4, tokens=4, batch=1, near=3, window=5)
    made = request(range(40), 9)
    simulation.scheduler.add(made)
    for step in range(1, 10):
        assert simulation.step() == [made]
        (state,) = simulation.scheduler.running
        assert (len(state.pages), state.unseen, len(state.near)) == (step, max(step - 1, 0), 1)
    simulation.run()
    assert made.tokens == alone(range(40), 9)
    assert simulation.near.available == 3 and simulation.pool.available == 20


@pytest.mark.parametrize(
    ("left", "begun", "cached"),
    [
        *((range(6), 24, 24), ((4, 5), 24, 24), ((), 0, 0)),
        *(((2, 3, 5), 16, 20), ((0, 2, 4), 4, 12), ((1, 3, 5), 0, 12)),  # more once what was missing is computed
    ],
)
def test_a_beginning_is_shared_as_far_as_its_window_is_there(left, begun, cached):
    simulation = Simulation(pages=20, size=4, tokens=4, batch=1, near=8, window=8)
    pool, near, stem = simulation.pool, simulation.near, tuple(range(26))
    first, second = request(stem, 1), request([*stem, 5], 3)
    simulation.scheduler.add(first)
    simulation.run()
    content, pages = ROOT, []
    for at in range(0, 24, 4):
        key = content, stem[at : at + 4]
        pages.append(near.find(*key))
        content = pool.content(pool.find(*key))
    assert len(set(pages)) == 6 and None not in pages, "what was given back is found until it is needed"
    for at in left:
        near.share(pages[at])
    near.release([near.take() for _ in range(near.available)])
    near.release([pages[at] for at in left])
    simulation.scheduler.add(second)
    assert simulation.step() == [second] and second.cached == begun
    simulation.run()
    assert second.cached == cached and second.tokens == alone(second.prompt, 3)


def test_a_request_waits_for_room_in_layers_with_windows():
    simulation = Simulation(pages=40, size=4, tokens=8, batch=3, near=7, window=8)
    first, second = request(range(20), 9), request(range(20, 40), 9)
    simulation.scheduler.add(first)
    assert simulation.step() == [first]
    simulation.scheduler.add(second)
    assert simulation.step() == [first] and simulation.scheduler.waiting
    simulation.run()
    assert first.tokens == alone(first.prompt, 9) and second.tokens == alone(second.prompt, 9)
    assert simulation.computed[first] == simulation.computed[second] == 28


def test_the_last_to_come_gives_the_pages_of_windows_back():
    simulation = Simulation(pages=40, size=4, tokens=8, batch=2, near=5, window=8)
    first, second = request([1], 20), request([2], 20)
    simulation.scheduler.add(first)
    simulation.scheduler.add(second)
    simulation.run()
    assert first.tokens == alone([1], 20) and second.tokens == alone([2], 20)
    assert simulation.computed[first] == 20 < simulation.computed[second]


def test_a_request_waits_for_room_and_gives_way_to_none_behind_it():
    simulation = Simulation(pages=4, size=4, tokens=8, batch=3)
    long, longer, short = request(range(9), 4), request(range(20, 32), 2), request([1], 1)
    for made in (long, longer, short):
        simulation.scheduler.add(made)
    assert simulation.step() == [long]
    assert len(simulation.scheduler.waiting) == 2
    simulation.run()
    assert long.done and longer.done and short.done


def test_the_last_to_come_gives_its_pages_back():
    simulation = Simulation(pages=4, size=4, tokens=8, batch=2)
    first, second = request([1, 1, 1, 1], 9), request([2, 2, 2, 2], 9)
    simulation.scheduler.add(first)
    simulation.scheduler.add(second)
    simulation.run()
    assert first.tokens == alone(first.prompt, 9) and second.tokens == alone(second.prompt, 9)
    assert simulation.computed[first] == 12, "the first is never interrupted"
    assert simulation.computed[second] > 12


def test_a_higher_priority_takes_the_place_of_a_lower_one():
    simulation = Simulation(batch=1)
    low, high = request([1, 2], 8), request([3, 4], 2, priority=5)
    simulation.scheduler.add(low)
    simulation.step()
    simulation.scheduler.add(high)
    assert simulation.step() == [high]
    simulation.run()
    assert low.tokens == alone([1, 2], 8) and high.tokens == alone([3, 4], 2)


@pytest.mark.parametrize("priority", [1, 3])
def test_a_request_waits_only_so_long_for_those_of_higher_priority(priority):
    """One more of these comes whenever one ends, and without end."""
    simulation = Simulation(batch=1)
    low, steps = request([1, 2], 5), 0
    simulation.scheduler.add(low)
    while not low.done:
        if not any(state.request is not low for state in simulation.scheduler.waiting):
            simulation.scheduler.add(request([3, steps], 4, priority=priority))
        simulation.step()
        steps += 1
        assert steps < 2000
    assert low.tokens == alone([1, 2], 5)
    assert AHEAD * priority <= steps <= AHEAD * priority + 20


def test_a_request_that_came_much_earlier_gives_its_place_to_none():
    simulation = Simulation(batch=1, pages=60)
    low, high = request([1, 2], AHEAD + 40), request([3, 4], 2, priority=1)
    simulation.scheduler.add(low)
    for _ in range(AHEAD + 1):
        simulation.step()
    simulation.scheduler.add(high)
    assert simulation.step() == [low]
    simulation.run()
    assert simulation.computed[low] == 2 + AHEAD + 39, "it is never interrupted"


def test_cancelled_requests_end_wherever_they_are():
    simulation = Simulation(batch=1)
    running, waiting = request([1, 2], 8), request([3, 4], 2)
    simulation.scheduler.add(running)
    simulation.scheduler.add(waiting)
    simulation.step()
    running.cancel()
    waiting.cancel()
    assert simulation.step() == []
    assert running.reason == waiting.reason == CANCELLED and len(running.tokens) == 1
    assert simulation.pool.available == simulation.pool.count


def test_what_followed_before_is_a_draft():
    lookup = Lookup()
    assert lookup.find_drafts([1, 2, 3, 4], 3) == []
    assert lookup.find_drafts([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]
    assert lookup.find_drafts([1, 2, 3, 4, 1, 2, 3], 1) == [4]
    assert lookup.find_drafts([1, 2, 3, 4, 1, 2, 3, 5, 2, 3], 9) == [5, 2, 3], "the last time counts"
    assert lookup.find_drafts([1, 2, 3, 4, 1, 2, 3, 5, 2, 3, 9], 9) == []


def test_pages_are_found_by_exactly_what_leads_to_them():
    pool = PagePool(3, 2)
    a, b = pool.take(), pool.take()
    first = pool.learn(a, ROOT, [1, 2])
    second = pool.learn(b, first, [1, 2])
    assert pool.find(ROOT, [1, 2]) == a and pool.find(first, [1, 2]) == b
    assert pool.find(second, [1, 2]) is None and pool.find(ROOT, [2, 1]) is None
    pool.release([a, b])
    assert pool.available == 3
    assert [pool.take() for _ in range(3)] == [2, b, a], "free ones first, then the end of what was released"
    assert pool.find(ROOT, [1, 2]) is None and pool.find(first, [1, 2]) is None


def test_the_same_content_computed_twice_is_one_content():
    pool = PagePool(2, 1)
    a, b = pool.take(), pool.take()
    assert pool.learn(a, ROOT, [7]) == pool.learn(b, ROOT, [7])
    pool.release([b])
    assert pool.free == [b], "nobody can find it again"


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize(("window", "count"), [(1, 1), (8, 1), (8, 16), (5, 7)])
def test_pages_of_a_window_are_counted(window, count, size):
    spans = []
    for first in range(3 * size):
        seen = range(first, first + window - 1 + count)
        spans.append(len({at // size for at in seen}))
    assert count_near(window, count, size) == max(spans)


def test_content_is_found_by_its_page():
    pool = PagePool(2, 1)
    page = pool.take()
    number = pool.learn(page, ROOT, [7])
    assert pool.content(page) == number
