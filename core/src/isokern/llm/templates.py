"""Chat templates: messages to the text that a model was trained on, by the file's Jinja template or a known one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..status import InvalidArgument
from .gguf import GGUF
from .renderers import ask

SECONDS = 10  # what a template may take
LONGEST = 1 << 20  # characters of a template

_SYSTEM_FIRST = (
    "{% set ns = namespace(system='') %}{% if messages[0].role == 'system' %}{% set ns.system = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}"
)
# The formats of well-known models, for files without a template: (template, strings that end an answer)
NAMED: dict[str, tuple[str, tuple[str, ...]]] = {
    "alpaca": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
        "{% elif m.role == 'user' %}{{ '### Instruction:\\n' + m.content + '\\n\\n' }}"
        "{% else %}{{ '### Response:\\n' + m.content + '\\n\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
        ("### Instruction:",),
    ),
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        ("<|im_end|>", "<|im_start|>"),
    ),
    "gemma": (
        "{{ bos_token }}" + _SYSTEM_FIRST + "{% for m in messages %}"
        "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' }}"
        "{% if loop.first and ns.system %}{{ ns.system + '\\n\\n' }}{% endif %}"
        "{{ m.content | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
        ("<end_of_turn>", "<start_of_turn>"),
    ),
    "llama2": (
        _SYSTEM_FIRST + "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' }}"
        "{% if loop.first and ns.system %}{{ '<<SYS>>\\n' + ns.system + '\\n<</SYS>>\\n\\n' }}{% endif %}"
        "{{ m.content | trim + ' [/INST]' }}{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}"
        "{% endfor %}",
        ("[INST]",),
    ),
    "llama3": (
        "{{ bos_token }}{% for m in messages %}"
        "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
        ("<|eot_id|>", "<|start_header_id|>"),
    ),
    "mistral": (
        "{{ bos_token }}" + _SYSTEM_FIRST + "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' }}"
        "{% if loop.last and ns.system %}{{ ns.system + '\\n\\n' }}{% endif %}{{ m.content + '[/INST]' }}"
        "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}",
        ("[INST]",),
    ),
    "phi3": (
        "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
        ("<|end|>", "<|user|>"),
    ),
    "vicuna": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
        "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\\n' }}"
        "{% else %}{{ 'ASSISTANT: ' + m.content + eos_token + '\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
        ("USER:",),
    ),
    "zephyr": (
        "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
        ("<|user|>",),
    ),
}


def find_template(gguf: GGUF, given: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return a template and the strings that end an answer in addition to the vocabulary's own tokens.

    `given` is one of `NAMED`, or the path of a file; without it, the template is the file's `tokenizer.chat_template`.
    InvalidArgument if there is none.
    """
    if given in NAMED:
        return NAMED[given]
    names = f"{', '.join(NAMED)}, or a file with a Jinja template"
    if given is not None:
        try:
            return Path(given).read_text(encoding="utf-8"), ()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidArgument("chat", f"template {given}: {reason}", allowed=names) from None
    template = gguf.metadata.get("tokenizer.chat_template")
    if template is None:
        raise InvalidArgument("chat", "the model has no chat template", allowed=names, hint="give one: --template NAME")
    if not isinstance(template, str):
        raise InvalidArgument("chat", f"tokenizer.chat_template is {type(template).__name__}", allowed="a string")
    return template, ()


def render(template: str, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
    """Return the text of `messages` by `template`, which also knows `values`.

    The template runs in a sandbox, in a separate process. InvalidArgument if it is not a template, imports one,
    reads what it may not, refuses the messages, or takes more than `SECONDS` or the memory that `render.py` allows.
    """
    if len(template) > LONGEST:
        raise InvalidArgument("chat", f"a template of {len(template)} characters", allowed=f"at most {LONGEST}")
    given = {"messages": [dict(m) for m in messages], **values}
    request = json.dumps({"template": template, "values": given, "seconds": SECONDS})
    try:
        line = ask(request.encode() + b"\n", SECONDS)
    except TimeoutError:
        raise InvalidArgument("chat", f"the template ran for more than {SECONDS} s") from None
    except OSError as error:
        raise InvalidArgument("chat", f"the template cannot be run: {error}") from error
    try:
        answer: dict[str, str] = json.loads(line)
    except ValueError:
        raise InvalidArgument("chat", "the template ended the process that rendered it") from None
    if "ended" in answer:
        raise InvalidArgument("chat", f"the template ended its process: {answer['ended']}")
    if "missing" in answer:
        raise InvalidArgument("chat", f"the package jinja2: {answer['missing']}", hint="pip install isokern[llm]")
    if "error" in answer:
        raise InvalidArgument("chat", f"the template cannot be rendered: {answer['error']}")
    return answer["text"]
