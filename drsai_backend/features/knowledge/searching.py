"""Searching asks the indexes of stores, and says of what was found in which file it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from drsai_backend.datamodel.knowledge import AgentStore
from drsai_backend.errors import EndpointFailed, InvalidRequest
from drsai_backend.features.knowledge.base import MAX_FOUND, MAX_QUERIES, NO_RANKERS, Findings, Passage, Question
from drsai_backend.features.knowledge.reranking import RERANKED, check_ranker, reranked
from drsai_backend.features.knowledge.rows import files, stores
from drsai_backend.features.knowledge.rows.indexing import sample_of
from drsai_backend.search import Found, Hit, Query, parse_filter
from drsai_backend.search.base import MAX_FOUND as MAX_HITS
from drsai_backend.search.base import MAX_INDEXES, Mode

if TYPE_CHECKING:
    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.features.base import Host
    from drsai_backend.features.knowledge.rows.files import FoundIn
    from drsai_backend.features.knowledge.rows.stores import Row

_FUSED: Final = 60
"""Of reciprocal rank fusion: a passage at a place counts 1 / (60 + place)."""
_MODES: Final[tuple[Mode, ...]] = ("keyword", "vector", "hybrid")
_NO_MODEL: Final = "There is no embedding model, so it was searched by keywords only."
_NO_ANSWER: Final = "The embedding model gave no answer, so it was searched by keywords only."
_REFUSED: Final = "The embedding model refuses the question, so it was searched by keywords only."
_NOT_YET: Final = "The files of the agent are not there yet, so they were not searched."
_OTHER: Final = (
    "The vector store {} is not embedded by {}, so its passages were found by keywords only; "
    "`drsai knowledge reindex` embeds it anew."
)


async def search(
    host: Host,
    owner: Owner,
    names: Sequence[str],
    question: Question,
    whose: Owner,
    without: frozenset[str] = frozenset(),
) -> Findings:
    """Do `Knowledge.search`. `without`: families of chunks that are of no file any more."""
    _check(names, question)
    check_ranker(host.models, question.ranker)
    ranker = None if question.ranker in NO_RANKERS else question.ranker
    most = question.top_k if ranker is None else max(question.top_k, RERANKED)
    filters = parse_filter(question.filters)
    rows = await host.database.read(partial(stores.resolve, owner=whose, names=names))
    if stale := [row["id"] for row in rows if stores.is_stale(row)]:
        await host.database.write(partial(stores.touch, keys=stale))
    notes: dict[str, None] = {}
    if any(isinstance(each, AgentStore) for each in names) and all(row["tenant"] for row in rows):
        notes[_NOT_YET] = None
    vectors = await _vectors(host, owner, rows, question, notes)
    by_model: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["index_key"] is not None:
            by_model[row["model"] if row["model"] in vectors else ""].append(row["index_key"])
    # Twice as many as are wanted: chunks of files that were deleted are not shown while a job removes them.
    looked_at = MAX_HITS if without else min(MAX_HITS, 2 * most)
    base = Query("", None, looked_at, "keyword", filters, question.score_threshold, question.on, without)
    found = [
        await host.search.find(indexes, _query(base, question, number, vectors.get(model)))
        for number in range(len(question.queries))
        for model, indexes in by_model.items()
    ]
    notes |= dict.fromkeys(note for each in found for note in each.notes)
    hits = found[0].hits if len(found) == 1 else _fused(found)
    families, indexes = {hit.family for hit in hits}, {row["id"]: row["index_key"] for row in rows}
    there, now = await host.database.read(
        lambda session: (files.found_in(session, families), stores.indexes_of(session, indexes))
    )
    if any(indexes[key] != index for key, index in now.items()):
        # The store was embedded anew meanwhile, and the index that was asked is going.
        return await search(host, owner, names, question, whose, without)
    passages = [_passage(hit, there[hit.family]) for hit in hits if hit.family in there][:most]
    if len(passages) < most and len(there) < len(families) and any(len(each.hits) == looked_at for each in found):
        # They are so many that they hide what is behind them.
        return await search(host, owner, names, question, whose, without | families - there.keys())
    if ranker is not None and len(passages) > 1:
        passages, said = await reranked(host, owner, ranker, question.queries, passages)
        notes |= dict.fromkeys(said)
    mode = _MODES[max((_MODES.index(each.mode) for each in found), default=0)]
    return Findings(queries=[*question.queries], passages=passages[: question.top_k], mode=mode, notes=[*notes])


def _check(names: Sequence[str], question: Question) -> None:
    """Raise InvalidRequest: it cannot be asked."""
    if not 1 <= len(names) <= MAX_INDEXES:
        raise InvalidRequest(f"1 to {MAX_INDEXES} vector stores are searched at once", param="vector_store_ids")
    if not 1 <= len(question.queries) <= MAX_QUERIES or not all(map(str.strip, question.queries)):
        raise InvalidRequest(f"`query` must be a text, or up to {MAX_QUERIES} of them", param="query")
    if not 1 <= question.top_k <= MAX_FOUND:
        raise InvalidRequest(f"`max_num_results` must be between 1 and {MAX_FOUND}", param="max_num_results")


async def _vectors(
    host: Host, owner: Owner, rows: Sequence[Row], question: Question, notes: dict[str, None]
) -> dict[str, Sequence[bytes]]:
    """Return the vectors of the questions by the models of the stores; of a model that gives none, a note."""
    found: dict[str, Sequence[bytes]] = {}
    if question.mode == "keyword":
        return found
    embedder = host.embedder
    if not embedder.available:
        notes[_NO_MODEL] = None
        return found
    indexed = [row for row in rows if row["index_key"] is not None]
    for model, index in {row["model"]: row["index_key"] for row in indexed if row["model"] is not None}.items():
        sample = partial(host.database.read, partial(sample_of, index=index))
        try:
            if made := await embedder.embed_by(model, owner, question.queries, sample):
                found[model] = made
        except EndpointFailed:
            notes[_NO_ANSWER] = None
        except InvalidRequest:
            notes[_REFUSED] = None
    others = [row for row in indexed if row["model"] not in found and row["model"] != embedder.model]
    notes |= dict.fromkeys(_OTHER.format(row["name"] or row["store_id"], embedder.model) for row in others)
    return found


def _query(base: Query, question: Question, number: int, vectors: Sequence[bytes] | None) -> Query:
    """Return what indexes are asked for one of the questions. `vectors`: of all of them, by the indexes' model."""
    query = replace(base, text=question.queries[number])
    return query if vectors is None else replace(query, vector=vectors[number], mode=question.mode)


def _fused(found: Sequence[Found]) -> list[Hit]:
    """Return the hits of several answers, by the places that they have in them."""
    scores: dict[tuple[int, str], float] = defaultdict(float)
    hits: dict[tuple[int, str], Hit] = {}
    for each in found:
        for place, hit in enumerate(each.hits, 1):
            scores[hit.index, hit.ref] += 1 / (_FUSED + place)
            hits.setdefault((hit.index, hit.ref), hit)
    order = sorted(scores, key=lambda key: (-scores[key], key))
    return [replace(hits[key], score=scores[key]) for key in order]


def _passage(hit: Hit, there: FoundIn) -> Passage:
    return Passage(
        store_id=there.store_id,
        file_id=there.file_id,
        filename=there.filename,
        text=hit.text,
        score=hit.score,
        attributes=hit.attributes,
        page=hit.place.get("page"),
        headings=hit.place["headings"],
        cosine=hit.cosine,
        place=hit.place["order"],
    )
