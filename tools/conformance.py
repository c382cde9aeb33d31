"""Run the conformance suite on backends: `python tools/conformance.py cpu [backend …] [options of isokern check]`.

With one backend the exit status is that of `isokern check`: 3 where no device is available. With several, a line
reports each that is not available, and the others decide. With `--keep` the report is saved as JSON for the support
matrix.

`--proof NAME` runs one of `PROOFS` instead: the ways to judge that docs/ledger.tsv has proofs of, with their devices,
options and settings. A backend that is named with `--ledger` is judged as the proof of its name. PROVE=all runs what is
proved, too, and PROVE_SHARD=N/M a part.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".tox" / "reports"
NO_DEVICE = 3  # exit status of `isokern check`
LEDGER = "docs/ledger.tsv"
# Settings that say where a result is kept or printed, and do not change it
ASIDE = {"ISOKERN_CACHE", "ISOKERN_DEBUG", "ISOKERN_DEVICE", "ISOKERN_PLUGINS"}
VERDICTS = {0: "passed", 1: "failed", NO_DEVICE: "not run", 4: "no case ran"}


@dataclass(frozen=True)
class Proof:
    """A way to judge a backend: the operators that pass are proved under its name.

    `settings` are variables when it runs, and `built` those with which its environment of tox.ini builds the packages;
    the proofs depend on both. `wheel` is the folder of the one whose kernel variants differ with that. `findings` is
    the variable that names the file to which a checker writes.
    """

    backend: str
    environment: str
    quick: bool = False
    small: bool = False
    claimed: bool = False
    runtime: bool = True
    operators: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    built: Mapping[str, str] = field(default_factory=dict)
    wheel: str = ""
    findings: str = ""
    asan: str = ""  # the compiler whose AddressSanitizer is loaded first
    patience: int = 0  # seconds for a case

    @property
    def conditions(self) -> list[str]:
        """What its proofs depend on in addition to the tree."""
        return sorted(f"{name}={value}" for name, value in {**self.settings, **self.built}.items())

    @property
    def listing(self) -> dict[str, str]:
        """The settings under which its cases can be listed: without a sanitizer, which has to be loaded first."""
        return {name: value for name, value in self.settings.items() if not name.endswith("_SANITIZE")}

    @property
    def options(self) -> list[str]:
        """The options of `isokern check` that choose the cases."""
        chosen = {"--quick": self.quick, "--small": self.small, "--claimed": self.claimed}
        words = [option for option, given in chosen.items() if given]
        words += [] if self.runtime else ["--part", "kernels"]
        words += ["--patience", str(self.patience)] if self.patience else []
        return [*words, *(word for name in self.operators for word in ("--op", name))]


# With barriers again, or in groups
_GROUPED = (
    *("argmax", "batch_norm", "concat", "conv2d", "copy", "copy_slice", "gather", "generic", "layer_norm", "linear"),
    *("matmul", "max_pool2d", "pad", "reduce_sum", "reduce_max", "rms_norm", "softmax", "add_rms_norm"),
    *("attention_lse", "cache_update", "causal_softmax", "embedding", "matmul_transposed", "random_sample", "topk"),
)
_CPU = "plugins/cpu"
_LEVELS = {"ISOKERN_CPU_LEVELS": "all"}
_SANITIZED = {
    **_LEVELS,
    "ISOKERN_CPU_CFLAGS": "-O1 -g1 -fno-omit-frame-pointer -ftrivial-auto-var-init=pattern"
    " -fsanitize=address,undefined -fno-sanitize-recover=all",
}
_POCL = {"ISOKERN_OPENCL_DEVICES": "pocl", "ISOKERN_OPENCL_BINARIES": "0"}
_OCLGRIND = {"ISOKERN_OPENCL_DEVICES": "oclgrind", "OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNINITIALIZED": "1"}
_ASAN = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}


def _make_checked(seed: int, **settings: str) -> Proof:
    """Return the proof by the checked XPU kernels, in the schedule of a seed: no finding is allowed."""
    every = {"ISOKERN_XPU_CHECK": "1", "ISOKERN_XPU_SEED": str(seed), **settings}
    name = "conformance-kunlun_sim-checked"
    return Proof("kunlun_sim", name, quick=True, settings=every, findings="ISOKERN_XPU_REPORT")


PROOFS = {
    "cpu": Proof("cpu", "ledger", claimed=True, wheel=_CPU),
    "cpu-levels": Proof("cpu", "conformance-cpu", claimed=True, built=_LEVELS, wheel=_CPU),
    "cpu-sanitize": Proof(
        "cpu", "conformance-cpu-sanitize", quick=True, settings=_ASAN, built=_SANITIZED, wheel=_CPU, asan="cc"
    ),
    "opencl": Proof("opencl", "conformance-opencl", claimed=True, settings=_POCL),
    # Real work-groups, for kernels of each stem with barriers
    "opencl-groups": Proof(
        "opencl",
        "conformance-opencl",
        quick=True,
        operators=_GROUPED,
        settings={**_POCL, "ISOKERN_OPENCL_GROUP": "64"},
    ),
    # Not the runtime's part: Oclgrind crashes where several threads use it, and its checks keep freed memory
    "oclgrind": Proof(
        "opencl",
        "opencl-oclgrind",
        quick=True,
        small=True,
        runtime=False,
        settings=_OCLGRIND,
        findings="OCLGRIND_LOG",
        patience=1800,
    ),
    "cuda_sim": Proof("cuda_sim", "conformance-cuda_sim", claimed=True),
    # Another order of the threads, in blocks of 256 as on a GPU
    "cuda_sim-256": Proof(
        "cuda_sim",
        "conformance-cuda_sim",
        quick=True,
        settings={"ISOKERN_CUDA_SIM_SEED": "1", "ISOKERN_CUDA_SIM_THREADS": "256"},
    ),
    "cuda_sim-sanitize": Proof(
        "cuda_sim",
        "conformance-cuda_sim-sanitize",
        quick=True,
        settings={"ISOKERN_CUDA_SIM_SANITIZE": "1", "ISOKERN_CUDA_SIM_THREADS": "256", **_ASAN},
        asan="g++",
    ),
    "kunlun_sim": Proof("kunlun_sim", "conformance-kunlun_sim", claimed=True),
    "kunlun_sim-kl2": Proof(
        "kunlun_sim", "conformance-kunlun_sim", quick=True, settings={"XPUSIM_DEVICE_MODEL": "KUNLUN2"}
    ),
    "kunlun_sim-3": Proof("kunlun_sim", "conformance-kunlun_sim", quick=True, settings={"XPU_NUM_CLUSTER": "3"}),
    "kunlun_sim-checked": _make_checked(0),
    # One cluster, so that a core has several tiles
    "kunlun_sim-checked-1": _make_checked(1, XPU_NUM_CLUSTER="1"),
    "kunlun_sim-checked-2": _make_checked(2),
}
_DECIDED = frozenset(name for proof in PROOFS.values() for name in proof.settings)


def list_conditions(proof: Proof) -> list[str]:
    """Return what the proofs depend on here: the packages may be built otherwise, and more variables may be set."""
    here = {name: value for name, value in os.environ.items() if name.startswith("ISOKERN_")}
    more = {n: v for n, v in here.items() if n not in ASIDE | _DECIDED and os.sep not in v}
    return sorted(f"{name}={value}" for name, value in {**proof.settings, **more}.items())


def find_sanitizer(compiler: str) -> str:
    """Return the path of a compiler's library of AddressSanitizer."""
    command = [os.environ.get("CC", "cc") if compiler == "cc" else compiler, "-print-file-name=libasan.so"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def isokern(*arguments: str, settings: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Run `isokern … --json` and return its exit status and the parsed JSON, or None."""
    environment = dict(os.environ)
    if settings is not None:
        environment = {n: v for n, v in os.environ.items() if n not in _DECIDED} | dict(settings)
    command = [sys.executable, "-m", "isokern", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None


def reason(backend: str) -> str:
    """Return why no device of `backend` can be used here."""
    rows = [row for row in isokern("devices")[1] or [] if row["backend"] == backend]
    return (
        "; ".join(f"{row['status']}: {row['reason']}" for row in rows)
        or f"no plug-in brings a backend called {backend}"
    )


def git(*arguments: str) -> str:
    """Return the output of a git command on this checkout; raise LookupError with the reason where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LookupError("there is no git on this machine") from None
    if done.returncode:
        raise LookupError((done.stderr.strip().splitlines() or [f"git {arguments[0]} fails"])[-1])
    return done.stdout.strip()


def judge(name: str, options: list[str], proof: Proof | None = None) -> tuple[int, dict[str, Any]]:
    """Check a backend, or run a proof, and print the outcome; return an exit status and the report.

    The status is that of `isokern check`, 1 if the plug-in is broken.
    """
    begin = time.monotonic()
    backend = name if proof is None else proof.backend
    settings: dict[str, str] | None = None
    findings = KEPT.parent / "findings" / name
    if proof is not None:
        options, settings = [*proof.options, *options], dict(proof.settings)
        if proof.asan:
            settings["LD_PRELOAD"] = find_sanitizer(proof.asan)
        if proof.findings:
            findings.parent.mkdir(parents=True, exist_ok=True)
            findings.unlink(missing_ok=True)
            settings[proof.findings] = str(findings)
        if "--ledger" in options:
            options += ["--proof", name, *(w for c in list_conditions(proof) for w in ("--condition", c))]
            options += ["--findings", str(findings)] if proof.findings else []
            options += ["--recheck", "100"] if os.environ.get("PROVE") == "all" else []
        if "PROVE_SHARD" in os.environ:
            options += ["--shard", os.environ["PROVE_SHARD"]]
    status, check = isokern("check", "--device", backend, *options, settings=settings)
    report: dict[str, Any] = {"backend": name, "options": options, "reason": "", "check": check}
    report["when"] = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if status == NO_DEVICE:
        report["reason"] = reason(backend)
        status = 1 if "broken: " in report["reason"] else status
    found = findings.read_text(errors="replace") if proof is not None and findings.exists() else ""
    status = status or int(bool(found))
    report["status"] = VERDICTS.get(status, f"exit status {status}")
    print(f"{name}: {report['status']}{report['reason'] and ': ' + report['reason']}")
    for device, counts in ((check or {}).get("summary") or {}).items():
        counted = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
        print(f"{device}: {counted or 'no case'} in {time.monotonic() - begin:.0f} s")
    for failure in (check or {}).get("failures", []):
        print(f"{failure['verdict']}  {failure['id']}: {failure['detail']}\n    {failure['repro']}")
    if found:
        print(f"the checker found, in {findings}:\n{found[:5000]}")
    sys.stdout.flush()
    return status, report


def keep(report: dict[str, Any]) -> None:
    """Save a report for the support matrix, with the commit that was judged."""
    try:
        report["commit"] = git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "--", ":!docs/status.md"))
    except LookupError:
        report["commit"] = "unknown"
    if report["status"] != VERDICTS[NO_DEVICE]:
        report["claims"] = isokern("ops")[1]
    KEPT.mkdir(parents=True, exist_ok=True)
    partial = KEPT / f"{report['backend']}.part"
    partial.write_text(json.dumps(report))
    os.replace(partial, KEPT / f"{report['backend']}.json")


def main(arguments: Sequence[str]) -> int:
    """Check each backend that is named before the first option, or run proofs."""
    backends = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))
    proofs, options, words = list[str](), list[str](), iter(arguments[len(backends) :])
    for word in words:
        if word == "--proof":
            proofs.append(next(words, ""))
        else:
            options.append(word)
    if unknown := {*proofs} - {*PROOFS}:
        raise SystemExit(f"--proof {', '.join(sorted(unknown))}: allowed: {', '.join(PROOFS)}")
    if "--ledger" in options and not {"--quick", "--small", "--op", "--case"} & {*options}:
        options = [o for o in options if o != "--claimed"]  # as the proof says
        proofs, backends = [*(b for b in backends if b in PROOFS), *proofs], [b for b in backends if b not in PROOFS]
    kept = "--keep" in options
    options = [o for o in options if o != "--keep"]
    found = [judge(name, options) for name in backends]
    found += [judge(name, options, PROOFS[name]) for name in proofs]
    if kept:
        for _, report in found:
            keep(report)
    statuses = {status for status, _ in found}
    return max(statuses - {NO_DEVICE} or {NO_DEVICE})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
