"""Render chat templates in a process of its own: lines of JSON on standard input, lines of JSON on standard output.

A template is a program that came with a file. It runs in Jinja's sandbox, which keeps it from Python's attributes, and
in a fork of this process, whose memory and time are limited, so that no loop and no string can harm the process that
asked, or the next template. `renderers.py` starts it as a script: nothing of Isokern is imported here.
"""

import json
import os
import sys
from typing import Any

MEMORY = 1 << 30  # bytes of address space
MOST = 1 << 24  # characters of the result


def limit(seconds: int) -> None:
    """Limit this process's memory and CPU time, if the system can."""
    try:
        import resource
    except ImportError:
        return
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, seconds)):
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # a lower limit holds already
            continue


def environment() -> Any:
    """Return Jinja's environment as chat templates expect it, which transformers documents.

    There are `raise_exception(text)`, `strftime_now(format)`, a `tojson` that leaves letters as they are, loop
    controls, and `{% generation %}`, which marks a part and changes nothing.
    """
    import datetime

    import jinja2.exceptions
    import jinja2.ext
    import jinja2.sandbox

    class GenerationTag(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class ChatEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:  # not only when it is used, but when it is read
            raise jinja2.exceptions.SecurityError(f"{type(obj).__name__}.{attribute} is unsafe to read")

    def raise_exception(message: object) -> None:
        raise jinja2.TemplateError(f"it refuses: {message}")

    def tojson(x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, **more: Any) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, **more)

    made = ChatEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def render(template: str, values: dict[str, Any]) -> str:
    """Return the text of a template; ValueError says what is wrong with it."""
    import jinja2
    from jinja2 import nodes

    made = environment()
    try:
        tree = made.parse(template)
        for found in tree.find_all((nodes.Import, nodes.FromImport, nodes.Include, nodes.Extends)):
            raise ValueError(f"line {found.lineno} imports another template")
        parts, size = [], 0
        for part in made.from_string(tree).generate(**values):
            parts.append(part)
            size += len(part)
            if size > MOST:
                raise ValueError(f"its text has more than {MOST} characters")
        return "".join(parts)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.message}") from None
    except jinja2.TemplateError as error:
        raise ValueError(str(error)) from None
    except MemoryError:
        raise ValueError(f"it takes more than {MEMORY >> 20} MiB of memory") from None
    except RecursionError:
        raise ValueError("it calls itself without end") from None


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Return the text of a request, or what is wrong with its template, within the limits."""
    limit(request["seconds"])
    try:
        return {"text": render(request["template"], request["values"])}
    except ValueError as error:
        return {"error": str(error)}
    except Exception as error:  # whatever a template's expression raises
        return {"error": f"{type(error).__name__}: {error}"}


def answer_apart(request: dict[str, Any]) -> bytes:
    """Return the JSON of an answer, made in a fork of this process, so that no template meets what another one left."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            with open(writing, "wb") as pipe:
                pipe.write(json.dumps(answer(request)).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        return json.dumps({"ended": f"signal {-code}" if code < 0 else f"exit status {code}"}).encode()
    return found


def main() -> None:
    """Answer requests, a line each, until the input ends."""
    sys.path.pop(0)  # this file's folder, whose modules are Isokern's
    missing = None
    try:
        # Once for all requests, and before the limits, which are the template's
        import jinja2.ext
        import jinja2.sandbox  # noqa: F401
    except ImportError as error:
        missing = json.dumps({"missing": str(error)}).encode()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write((missing or answer_apart(json.loads(line))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
