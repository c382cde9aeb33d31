"""Random kernels of the phases in phases.txt, correct or with one planted fault whose rule and lines are known."""

from __future__ import annotations

import random
import re
from string import Template

import many
from many import HERE, Kernel, sections

PHASES = sections(HERE / "phases.txt")
FAULT = re.compile(r"\[\[(\d):(.*?)\|(.*?)\]\]")
MARKS = re.compile(r" *//!((?: \d:@?[\w-]+)+)$", re.MULTILINE)
TYPES = ["float", "int", "short", "unsigned char", "long long"]
# What the phases call, and what is told there of a fault in it
CALLED = {
    "fill": """static __attribute__((noinline)) void fill(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)i; //! lm-bounds //! lm-overflow
}
""",
    "sum": """static __attribute__((noinline)) float sum(const float *x, int n)
{
    float s = 0;
    for (int i = 0; i < n; i++)
        s += x[i]; //! lm-bounds //! uninitialised
    return s;
}
""",
    "deep": """static __attribute__((noinline)) int deep(int d, int last)
{ //! lm-overflow //! exception
    volatile char x[64];
    x[d % 64] = (char)d;
    return d >= last ? d : deep(d + 1, last) + x[d % 64]; //! lm-overflow //! exception
}
""",
}


def phase(r: random.Random, name: str, number: int, fault: int) -> tuple[str, str]:
    """Return the text of a phase with a fault (0: none), and the function in which the fault is told, if any."""
    n = r.randint(2, 40)
    names = {x: f"{x}{number}" for x in "abpq"}
    numbers = {"n": n, "k": r.randint(0, n - 1), "m": r.randint(1, 8), "v": r.randint(1, 4), "type": r.choice(TYPES)}
    text = FAULT.sub(lambda part: part[2] if int(part[1]) == fault else part[3], PHASES[name])
    called = re.search(rf"//!.* {fault}:@(\w+)", text)

    def mark(found: re.Match[str]) -> str:
        rules = [rule for which, rule in re.findall(r"(\d):([\w-]+)", found[1]) if int(which) == fault]
        return "".join(f" //! {rule}" for rule in rules)

    return Template(MARKS.sub(mark, text)).substitute(names, **numbers), called[1] if called else ""


def generate(seed: int, faulty: bool) -> Kernel:
    """Return the kernel of a seed."""
    r = random.Random(seed)
    chosen = [r.choice(list(PHASES)) for _ in range(r.randint(1, 5))]
    at = r.randrange(len(chosen))
    if faulty and r.random() < 0.9:  # phases with few faults are not met more often
        chosen[at] = r.choice([name for name in PHASES for _ in faults(name)])
    body, called = ["const int me = core_num() * cluster_id() + core_id();", "__local__ float r = 0;"], ""
    for number, name in enumerate(chosen):
        fault = r.choice(faults(name)) if faulty and number == at else 0
        text, inside = phase(r, name, number, fault)
        called = called or inside
        head = r.choice(["", "if (me >= 0)", f"for (int t = 0; t < {r.randint(1, 3)}; t++)"])
        if not name.startswith("cluster") and not fault:
            head = r.choice([head, f"if (core_id() % {r.randint(1, 4)} == 0)"])
        body += [head, "{", *("    " + line for line in text.splitlines()), "}"]
    body += ["mfence();", "LM2GM(&r, out + 128 * me, 4);"]
    text = "\n".join(body)
    before = "".join(
        code if name == called else many.MARK.sub("", code) for name, code in CALLED.items() if f"{name}(" in text
    )
    how = {"clusters": r.choice([1, 1, 2]), "cores": r.choice([4, 8, 16]), "seed": r.choice([0, 0, 1, 2, 3])}
    return Kernel(text, before, **how)


def faults(name: str) -> list[int]:
    """Return the numbers of a phase's faults."""
    return sorted({int(which) for which, *_ in FAULT.findall(PHASES[name])})
