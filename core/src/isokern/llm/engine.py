"""Many requests to a model at once: each step computes tokens of all of them, over one cache of pages."""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..arguments import integer
from ..process.forks import own_lock, tell_in_child
from ..process.imports import wait_before_forks
from ..status import InvalidArgument, quote
from .batch import PAGE, BatchRunner, StepRunner
from .drawing import Drawing, add_suppressed
from .engine_text import EngineText
from .generate import TextEnding, read_stop
from .grammar import Grammar, GrammarState
from .kv_cache import cache_dtype
from .logprobs import TokenLogprobs
from .model import Model
from .pages import PagePool, SlotPool
from .request import FAILED, LENGTH, STOP, Request
from .sampling import Sampling, check_sampling
from .scheduler import Scheduler, count_near
from .session import read_ends, read_tokens
from .state_batch import StateRunner
from .state_scheduler import StateScheduler
from .steps import SPAN
from .tokenizer import Tokenizer
from .turns import SequenceState

wait_before_forks()
POSITIONS = 16384  # the default size of a cache, unless one sequence may have more
KEPT = 8  # slots for the states after shared prefixes


class Engine:
    """Generates the completions of many requests to a model at once, in a thread that runs while there are any.

    A step decodes one token of each of up to `batch` sequences; the rest of its `tokens` are parts of prompts in
    prefill. `context` is the number of positions that a sequence may have, by default those of the model; more are a
    warning. The cache has the dtype `dtype` and `positions` in all, by default four times that and up to POSITIONS, but
    enough for at least one sequence; layers with a window have as many as the windows of `batch` sequences. Requests
    with a common prefix share its cache. With `exact`, logits do not depend on the other requests, bit for bit, which
    is slower: all steps have one shape, and each token attends as a separate sequence. With `drafts`, a step also
    computes up to so many tokens that followed in the text before; those that are drawn indeed, `accepted` in all, take
    no step of their own, and the text is the same. A context manager; `close` ends it.

    A model that keeps states in place of keys has them in slots, one for each of the batch and KEPT more for beginnings
    that others may share; there are no `positions` and no drafts, and states are F32. With `exact` prompts are read
    token by token.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: int | None = None,
        positions: int | None = None,
        batch: int = 16,
        tokens: int = SPAN,
        dtype: object = "F16",
        exact: bool = False,
        drafts: int = 0,
    ) -> None:
        c = model.config
        most = None if c.form.pairing or c.recurrent else c.context
        self.context = c.context if context is None else integer("Engine", "context", context, 1, most)
        if self.context > c.context:
            given = f"{self.context} positions are more than the {c.context} that the model was trained on"
            warnings.warn(f"{given}: its output may get worse", stacklevel=2)
        batch = integer("Engine", "batch", batch, 1)
        drafts = integer("Engine", "drafts", drafts, 0)
        hint = "each of the batch has a token and its drafts in a step"
        tokens = integer("Engine", "tokens", tokens, batch * (1 + drafts), hint=hint)
        kept = cache_dtype("Engine", dtype)
        self.model = model
        self.accepted = 0
        self.scheduler: Scheduler | StateScheduler
        self.runner: StepRunner
        if c.recurrent:
            _check_states(c.architecture, positions, drafts)
            self.room = self.context
            self.pool: PagePool = SlotPool(batch + KEPT)
            self.scheduler = StateScheduler(self.pool, tokens, batch, bool(exact))
            self.runner = StateRunner(model, self.context, self.scheduler)
        else:
            usual = max(self.context, min(4 * self.context, POSITIONS))
            self.positions = usual if positions is None else integer("Engine", "positions", positions, 1)
            self.pool = PagePool(-(-self.positions // PAGE), PAGE)
            self.room = min(self.context, self.pool.count * PAGE)
            window = max(c.windows, default=0)
            count = batch * count_near(window, tokens, PAGE)
            near = PagePool(count, PAGE) if 0 < window < self.context and count < self.pool.count else None
            self.scheduler = Scheduler(self.pool, tokens, batch, drafts, near, window)
            self.runner = BatchRunner(model, self.context, self.scheduler, kept, exact=bool(exact))
        self._worker = _Worker()
        weakref.finalize(self, self._worker.stop)  # also at exit, while threads still run
        tell_in_child(self, "_in_child")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def cache_bytes(self) -> int:
        """The bytes of the cache."""
        return sum(held.desc.nbytes for held in self.runner.caches.values())

    @property
    def scratch_bytes(self) -> int:
        """The bytes of activations and workspaces of all programs so far."""
        return sum(program.nbytes for program in self.runner.programs.values())

    @property
    def running(self) -> int:
        """How many requests have a share in the steps."""
        return len(self.scheduler.running)

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self.scheduler.waiting)

    def submit(
        self,
        prompt: Iterable[int],
        max_tokens: int,
        sampling: Sampling | None = None,
        *,
        ends: Iterable[int] = (),
        bias: Mapping[int, float] | None = None,
        constraint: GrammarState | None = None,
        priority: int = 0,
        listener: Callable[[], None] | None = None,
        logprobs: int | None = None,
    ) -> Request:
        """Return a request for up to `max_tokens` tokens after `prompt`, until one of `ends`.

        `bias` is added to the logits of its tokens, and -inf rules one out; `constraint`, which no other request
        may have, rules out what its grammar does not allow. `listener` is called after each token and at the end, in
        the engine's thread. With `logprobs`, the request's `logprobs` say how likely each token was by the logits of
        the model, and the so many likeliest ones (`TokenLogprobs`). InvalidArgument if the prompt is empty or has
        tokens out of range, it and the text do not fit the context or the cache, or an option is wrong.
        """
        most, size = integer("generate", "max_tokens", max_tokens, 1), self.model.config.vocabulary
        ids, priority = read_tokens(prompt, size), integer("generate", "priority", priority)
        if len(ids) + most - 1 > self.room:
            given = f"{len(ids)} tokens and {most - 1} more"
            hint = "give the engine a larger context" + ("" if self.model.config.recurrent else ", or more positions")
            raise InvalidArgument("prompt", given, allowed=f"{self.room} in all, the room of a sequence", hint=hint)
        ends = read_ends(ends)
        if not (listener is None or callable(listener)):
            raise InvalidArgument("generate", f"listener={quote(listener)}", allowed="a function, or None")
        bias = add_suppressed(bias, self.model.suppressed)
        drawing = Drawing(check_sampling(sampling), bias, size, self.model.device, constraint)
        top = None if logprobs is None else integer("generate", "logprobs", logprobs, 0)
        request = Request(ids, most, drawing, ends, priority, top)
        if listener is not None:
            request.listen(listener)
        with self._worker.lock:
            if self._worker.closed:
                raise InvalidArgument("Engine", "it is closed", allowed="requests before close()")
            self.scheduler.add(request)
            self._worker.start(self._work)
        return request

    def text(
        self,
        tokenizer: Tokenizer,
        prompt: str | Sequence[int],
        max_tokens: int,
        sampling: Sampling | None = None,
        *,
        stop: Iterable[str] = (),
        special: bool = False,
        bias: Mapping[int, float] | None = None,
        grammar: Grammar | None = None,
        priority: int = 0,
    ) -> EngineText:
        """Return an iterator of the text that follows `prompt`, each piece of whole characters; closing it cancels.

        `async for` also yields the pieces.

        The completion ends before the first of the strings `stop`, or when the model ends it. With `special`, control
        tokens that `prompt` spells out are read as tokens; a prompt may also be tokens. With `grammar` the completion
        matches it, in full if the model ends it. Errors are those of `submit`.
        """
        options: dict[str, Any] = {"stop": stop, "special": special, "bias": bias, "grammar": grammar}
        return self.texts(tokenizer, prompt, max_tokens, 1, sampling, priority=priority, **options)[0]

    def samples(
        self,
        prompt: Iterable[int],
        max_tokens: int,
        n: int,
        sampling: Sampling | None = None,
        *,
        ends: Iterable[int] = (),
        constraint: Callable[[], GrammarState] | None = None,
        **options: Any,
    ) -> list[Request]:
        """Return requests for `n` completions of one prompt, whose full pages are computed once.

        They are drawn by seeds that follow one another. `constraint` begins one for each; other options and errors are
        those of `submit`.
        """
        ids, ends = read_tokens(prompt, self.model.config.vocabulary), read_ends(ends)
        sampling = check_sampling(sampling)
        if not (constraint is None or callable(constraint)):
            given = f"constraint={quote(constraint)}"
            raise InvalidArgument("generate", given, allowed="a function that begins one, or None")
        made: list[Request] = []
        try:
            for i in range(integer("generate", "n", n, 1)):
                own = None if constraint is None else constraint()
                how = sampling.of_sample(i)
                made.append(self.submit(ids, max_tokens, how, ends=ends, constraint=own, **options))
        except BaseException:
            for request in made:
                request.cancel()
            raise
        return made

    def texts(
        self,
        tokenizer: Tokenizer,
        prompt: str | Sequence[int],
        max_tokens: int,
        n: int,
        sampling: Sampling | None = None,
        *,
        stop: Iterable[str] = (),
        special: bool = False,
        grammar: Grammar | None = None,
        **options: Any,
    ) -> list[EngineText]:
        """Return iterators of `n` completions of `prompt`: `text` as `samples` is `submit`."""
        stop = read_stop(stop)
        endings = [TextEnding(tokenizer, stop) for _ in range(integer("generate", "n", n, 1))]
        ids = tokenizer.encode(prompt, special=special, eos=False) if isinstance(prompt, str) else prompt
        begin = None if grammar is None else lambda: grammar.begin(tokenizer)
        made = self.samples(ids, max_tokens, n, sampling, ends=tokenizer.ends, constraint=begin, **options)
        return [EngineText(request, ending) for request, ending in zip(made, endings, strict=True)]

    def close(self) -> None:
        """Cancel all requests, and wait until the step that is being computed is done."""
        self._worker.stop()

    def _in_child(self) -> None:
        """End what was being computed when the process forked: the thread that did is not in the child."""
        if self._worker.thread is None:
            return
        self._worker.thread, self._worker.closed = None, True
        hint = "make another engine in the child, or fork when no text is open"
        for state in (*self.scheduler.running, *self.scheduler.waiting):
            error = InvalidArgument("Engine", "the process forked while it computed", hint=hint)
            state.request.finish(FAILED, error)

    # In the engine's thread

    def _work(self) -> None:
        """Compute steps until there is nothing to do; an error outside of a step's computation ends all requests."""
        try:
            while self._run_step():
                pass
        except BaseException as error:
            with self._worker.lock:
                self._worker.thread = None
                for state in (*self.scheduler.running, *self.scheduler.waiting):
                    with contextlib.suppress(BaseException):
                        self.scheduler.finish(state, FAILED, error)

    def _run_step(self) -> bool:
        """Compute a step, and return whether there was one."""
        with self._worker.lock:
            if self._worker.closed:
                for state in (*self.scheduler.running, *self.scheduler.waiting):
                    state.request.cancel()
            parts = self.scheduler.plan()
            if not parts:
                self._worker.thread = None
                return False
        try:
            drawn = self.runner.run(parts)
        except BaseException as error:  # a library's panic is not an Exception
            with self._worker.lock:
                for state in parts:
                    self.scheduler.finish(state, FAILED, error)
            return True
        with self._worker.lock:
            for state, count in parts.items():
                self.scheduler.commit(state, count)
                self._append(state, drawn.get(state, []))
        return True

    def _append(self, state: SequenceState, drawn: Sequence[tuple[int, TokenLogprobs | None] | BaseException]) -> None:
        """Add tokens to a sequence, and finish it if it ends."""
        request = state.request
        for i, found in enumerate(drawn):
            if i:  # the draft that was right has been computed
                self.scheduler.commit(state, 1)
                self.accepted += 1
            if isinstance(found, BaseException):
                self.scheduler.finish(state, FAILED, found)
                return
            token, logprobs = found
            if token in request.ends:
                self.scheduler.finish(state, STOP)
                return
            state.tokens.append(token)
            request.add(token, logprobs)
            if len(request.tokens) == request.most:
                self.scheduler.finish(state, LENGTH)
                return


def _check_states(architecture: str, positions: object, drafts: int) -> None:
    """Refuse what a model that keeps states has not."""
    where = f"of a model of {architecture}, which keeps states"
    if positions is not None:
        given, hint = f"positions={quote(positions)} {where}", "a state is as large for any text: batch and context"
        raise InvalidArgument("Engine", given, allowed="None", hint=hint)
    if drafts:
        given, hint = f"drafts={drafts} {where}", "a state cannot give back what a wrong draft put in"
        raise InvalidArgument("Engine", given, allowed="0", hint=hint)


class _Worker:
    """The thread of an engine, which ends when there is nothing to do, and the lock of what it and others change."""

    def __init__(self) -> None:
        self.lock = own_lock(self, "lock")  # reentrant: a listener may submit
        self.thread: threading.Thread | None = None
        self.closed = False

    def start(self, work: Callable[[], None]) -> None:
        """Have the thread run; it holds the lock whenever it decides that it ends."""
        if self.thread is None:
            thread = threading.Thread(target=work, name="isokern-engine", daemon=True)
            thread.start()
            self.thread = thread  # if no thread can be started, the next call tries again

    def stop(self) -> None:
        """Let nothing begin after this, and wait for the thread."""
        with self.lock:
            self.closed = True
            thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
