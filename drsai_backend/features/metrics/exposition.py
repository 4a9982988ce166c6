"""The exposition is the text that Prometheus reads, in its own format or in OpenMetrics'. `prometheus_client` writes
it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from drsai_backend.features.metrics.base import FAMILIES, Family, Key


class _Collected(Collector):
    """All families, those without a sample included."""

    def __init__(self, values: Mapping[Key, float]) -> None:
        self._values: defaultdict[str, dict[Key, float]] = defaultdict(dict)
        for (name, *labels), value in sorted(values.items()):
            self._values[name][tuple(labels)] = value

    def collect(self) -> Iterable[Metric]:
        return (_family(each, self._values[each.name]) for each in FAMILIES)


def _family(family: Family, values: Mapping[Key, float]) -> Metric:
    if family.kind == "histogram":
        return _histogram(family, values)
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = kind(family.name, family.text, labels=family.labels)
    for labels, value in values.items():
        made.add_metric(labels, value)
    return made


def _histogram(family: Family, values: Mapping[Key, float]) -> Metric:
    made = HistogramMetricFamily(family.name, family.text, labels=family.labels)
    for labels in dict.fromkeys(key[:-1] for key in values):
        counts = [values.get((*labels, str(number)), 0.0) for number in range(len(family.buckets) + 1)]
        ends = (*map(str, family.buckets), "+Inf")
        made.add_metric(labels, [*zip(ends, accumulate(counts), strict=True)], values.get((*labels, "sum"), 0.0))
    return made


def exposition(values: Mapping[Key, float], accept: str) -> tuple[bytes, str]:
    """Return the text of all metrics, and its content type.

    Args:
        values: by the keys of metrics.
        accept: the header of who asks: what formats are read.
    """
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(values)), content_type
