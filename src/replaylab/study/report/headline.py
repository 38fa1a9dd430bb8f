"""The first line of a report: the answer in one sentence, and the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replaylab.learners.metrics import REGISTRY
from replaylab.number_format import counted, equals_p, signed_significant, significant
from replaylab.study.analysis import comparisons
from replaylab.study.analysis.comparisons import RETURN, ComparisonResults, Difference, Level, Measure
from replaylab.study.analysis.contrast_results import ContrastResult, ContrastResults, evaluate_contrasts
from replaylab.study.report import sentences
from replaylab.study.spec.contrasts import ResolvedContrast
from replaylab.study.spec.display_text import Answers
from replaylab.study.spec.spec import Spec

if TYPE_CHECKING:
    from replaylab.study.report.reported_study import ReportedStudy

JUDGED: Measure = "area"
"""The measure that the answer is about in studies without contrasts."""

MOST_ROWS = 12
"""Comparisons that a terminal lists below the answer; the report has all."""

MOST_PLACES = 4
"""Environments and learners that the answer names for one verdict; of more it states the number."""


@dataclass(frozen=True)
class Headline:
    """The answer, and the numbers that it rests on."""

    answer: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.answer} {self.evidence}"


def measured(contrast: ResolvedContrast) -> str:
    """Return what a contrast compares, in words, such as "average return"."""
    return f"{sentences.MEASURE_NAMES[contrast.measure]} {unit(contrast)}"


def unit(contrast: ResolvedContrast) -> str:
    """Return what a contrast's differences are of, in words: "return", "score", or the title of its metric."""
    if contrast.unit in ("score", "return") or contrast.metric not in REGISTRY:
        return contrast.unit
    title = REGISTRY[contrast.metric].title
    return f"{'logarithm of ' if contrast.log else ''}{title[0].lower()}{title[1:]}"


def of_contrast(result: ContrastResult) -> str:
    """Return a contrast's verdict as a sentence: the study's own one, or a generated one."""
    contrast = result.contrast
    if result.verdict == "not interpretable":
        return f"Not interpretable: the check {sentences.joined(result.failed_checks)} failed."
    if contrast.check is not None:
        return f"Check {result.verdict}{' on the mean of environments' if result.by_environment else ''}."
    first, second, what, within = *contrast.sides, measured(contrast), margin(result)
    if contrast.of is None:
        generated = _generated(result.verdict, first, second, what, within)
    else:  # of two other contrasts
        generated = _generated(result.verdict, f"“{first}”", f"“{second}”", f"difference in {what}", within, "in")
    return contrast.answers.of(result.verdict) or generated


def main_contrast(results: Sequence[ContrastResult]) -> ContrastResult | None:
    """Return the primary contrast, or without one the first; None without results."""
    return next((result for result in results if result.contrast.primary), results[0] if results else None)


def of_contrasts(results: Sequence[ContrastResult]) -> Headline | None:
    """Return the answer of a study with contrasts; None without results."""
    main = main_contrast(results)
    return None if main is None else Headline(of_contrast(main), numbers(main))


def sentence(result: ContrastResult) -> str:
    """Return the verdict on one contrast in words, with its numbers."""
    return f"{of_contrast(result)} {numbers(result)}".strip()


def numbers(result: ContrastResult) -> str:
    """Return the numbers behind a verdict, and whether it agrees with a published statement."""
    published = result.contrast.published
    measured = "" if result.verdict == "not interpretable" else _measured_numbers(result)
    if published is None:
        return measured
    return f"{measured} {sentences.capital(str(result.outcome))}: “{published.says}” ({published.source}).".lstrip()


def _measured_numbers(result: ContrastResult) -> str:
    """Return what is compared, the verdict, and the difference with its interval."""
    contrast, reported = result.contrast, result.reported
    seeds, versus = counted(len(result.each.seeds), "seed"), sentences.capital(contrast.versus)
    environments = {cell.environment for cell in contrast.cells}
    mean = f", mean of {len(environments)} environments" if len(environments) > 1 else ""
    size = f"{sentences.effect(reported.interval)} in {measured(contrast)}{mean}"
    ends = f"{reported.label} interval {sentences.effect_interval(reported.interval, len(result.each.seeds))}"
    if contrast.check is not None:
        wanted = " to ".join(map(signed_significant, contrast.check))
        return f"{versus}: {size} ({ends}; it must lie within {wanted}; {seeds}).{_by_environment(result)}"
    declared = (
        f"margin {margin(result)}; " if contrast.equivalence is not None and result.verdict != "equivalent" else ""
    )
    p = f"p {equals_p(result.p)}" if contrast.primary else f"p {equals_p(result.p_max_t)} after max-T correction"
    verdict = sentences.in_words(result.verdict, margin(result))
    return f"{versus}: {verdict}, {size} ({ends}; {declared}{p}; {seeds})."


def _by_environment(result: ContrastResult) -> str:
    """Return in which environments a check passes by itself and in which not; empty for a single environment."""
    texts = []
    for word in ("failed", "passed"):
        places = [
            f"{environment} ({sentences.effect(part.size)})"
            for environment, part in result.by_environment.items()
            if part.verdict == word
        ]
        texts += [f"{word} in {sentences.joined(places)}"] if places else []
    return f" By environment: {'; '.join(texts)}." if texts else ""


def margin(result: ContrastResult) -> str:
    """Return the equivalence margin as ±size; a dash without one."""
    return "–" if result.contrast.equivalence is None else f"±{significant(result.contrast.equivalence)}"


def meanings(results: Sequence[ContrastResult], spec: Spec) -> str:
    """Return what the scores and metrics are that contrasts compare in place of the return."""
    metrics = dict.fromkeys(f.contrast.metric for f in results)
    known = [REGISTRY[name] for name in metrics if name in REGISTRY and name != RETURN]
    found_meanings = [f" {metric.title}: {metric.meaning}." for metric in known]
    if any(f.contrast.scored for f in results):
        scales = [f"{name} {score.low:g} and {score.high:g}" for name, score in spec.scores.items()]
        found_meanings.append(f" Score: a linear scale of the return; 0 and 1 are for {'; for '.join(scales)}.")
    return "".join(found_meanings)


def of_differences(results: ComparisonResults, spec: Spec) -> Headline | None:
    """Return the answer of a study without contrasts, about average returns; None without any result."""
    judged = [d for d in results.differences if d.measure == JUDGED]
    levels = [level for level in results.levels if level.measure == JUDGED]
    if not levels:
        return None
    if not judged:
        return _of_levels(levels, spec)
    if len(judged) == 1:
        answers = spec.answers or Answers()
        word = sentences.verdict(judged[0])
        titles = sentences.titled((judged[0].strategy, judged[0].baseline), spec)
        phrase = sentences.MEASURE_PHRASES[JUDGED]
        answer = answers.of(word) or _generated(word, titles[0], titles[1], phrase, sentences.bounds(judged[0]))
        return Headline(answer, row(judged[0], spec))
    if len({d.cell for d in judged}) == 1:
        return Headline(_in_one_place(judged, spec), _highest(levels, spec))
    seeds = counted(max(d.pairs for d in judged), "seed")
    return Headline(_in_places(judged, spec), f"{seeds} each; corrected for {counted(len(judged), 'comparison')}.")


def answers(study: ReportedStudy) -> list[str]:
    """Return lines for a terminal: the answer of a study, then its contrasts or, if few, its comparisons."""
    rows, spec = study.results(), study.spec
    if spec.contrasts:
        return contrast_lines(evaluate_contrasts(spec, lambda metric: comparisons.curves_of(rows, spec, metric)))
    curves = comparisons.curves_of(rows, spec, RETURN)
    results = ComparisonResults(comparisons.levels(curves), comparisons.differences_of(curves, spec), [])
    return difference_lines(results, spec)


def difference_lines(results: ComparisonResults, spec: Spec) -> list[str]:
    """Return the answer of a study without contrasts, and its comparisons if they are few, as lines for a terminal."""
    line = of_differences(results, spec)
    rows = [row(d, spec) for d in results.differences] if len(results.differences) <= MOST_ROWS else []
    return [str(line), *(text for text in rows if text != line.evidence)] if line else []


def contrast_lines(evaluated: ContrastResults) -> list[str]:
    """Return the results of contrasts as lines for a terminal: the answer first."""
    main = main_contrast(evaluated.results)
    return [
        *([sentence(main)] if main else []),
        *(f"{f.contrast.name}: {sentence(f)}" for f in evaluated.results if f is not main),
        *(f"warning: {warning}" for warning in evaluated.warnings),
    ]


def _generated(word: str, first: str, second: str, what: str, margin: str, where: str = "with") -> str:
    return {
        "higher": f"The {what} was higher {where} {first} than {where} {second}.",
        "lower": f"The {what} was lower {where} {first} than {where} {second}.",
        "equivalent": f"The {what} was equivalent {where} {first} and {where} {second}, within {margin}.",
        "inconclusive": f"Inconclusive: the data do not show whether the {what} is higher {where} {first} or {second}.",
    }[word]


def _in_one_place(differences: Sequence[Difference], spec: Spec) -> str:
    base, phrase = spec.title_of(spec.baseline), sentences.MEASURE_PHRASES[JUDGED]
    titles = {
        word: sentences.titled([d.strategy for d in of_word], spec)
        for word, of_word in _by_verdict(differences).items()
    }
    named = {word: sentences.some(of_word) for word, of_word in titles.items()}
    if list(named) == ["inconclusive"]:
        return f"Inconclusive: no difference in {phrase} from {base} was shown for {named['inconclusive']}."
    clauses = [f"{word} with {named[word]}" for word in ("higher", "lower") if word in named]
    if "equivalent" in named:
        margin = next(sentences.bounds(d) for d in differences if d.equivalent)
        clauses.append(f"equivalent with {named['equivalent']} (within {margin})")
    answer = f"Compared with {base}, the {phrase} was {'; '.join(clauses)}."
    if "inconclusive" in named:
        differ = "differs" if len(titles["inconclusive"]) == 1 else "differ"
        answer += f" Whether {named['inconclusive']} {differ} from {base} is inconclusive."
    return answer


def _in_places(differences: Sequence[Difference], spec: Spec) -> str:
    """Return for each strategy which verdict it had on which environments and with which learners."""
    clauses = []
    for strategy in dict.fromkeys(d.strategy for d in differences):
        by_verdict = _by_verdict([d for d in differences if d.strategy == strategy])
        texts = [f"{word} {_where(of_word, differences, spec)}" for word, of_word in by_verdict.items()]
        if len(texts) > 1:
            texts[-1] = f"{list(by_verdict)[-1]} elsewhere"
        clauses.append(f"{spec.title_of(strategy)} was {', and '.join(texts)}")
    lead = f"{sentences.MEASURE_TITLES[JUDGED]} compared with {spec.title_of(spec.baseline)}"
    return f"{lead}: {'; '.join(clauses[:MOST_ROWS])}."


def _by_verdict(differences: Sequence[Difference]) -> dict[str, list[Difference]]:
    """Return the differences of each verdict that any of them has."""
    words = ("higher", "lower", "equivalent", "inconclusive")
    each = {word: [d for d in differences if sentences.verdict(d) == word] for word in words}
    return {word: of_word for word, of_word in each.items() if of_word}


def _where(some: Sequence[Difference], differences: Sequence[Difference], spec: Spec) -> str:
    """Return the environments, and if one has several the learners, of some of a strategy's differences, in words."""
    preposition, noun = "on", "pairs of environment and learner" if spec.names_learners else "environments"
    one_environment = len({d.environment for d in differences}) == 1
    if one_environment:
        preposition, noun = "with", "learners"
    if len(some) == len({d.cell for d in differences}):
        return f"{preposition} {'both' if len(some) == 2 else f'all {len(some)}'} {noun}"
    if len(some) > MOST_PLACES:
        of_strategy = sum(d.strategy == some[0].strategy for d in differences)
        return f"{preposition} {len(some)} of {of_strategy} {noun}"
    names = []
    for d in some:
        learner = spec.learner_title_of(d.learner)
        several = spec.place_of(*d.cell) != d.environment
        names.append(learner if one_environment else f"{d.environment} ({learner})" if several else d.environment)
    return f"{preposition} {sentences.joined(names)}"


def _highest(levels: Sequence[Level], spec: Spec) -> str:
    best = max(levels, key=lambda level: level.iqm.estimate)
    base = next((level for level in levels if level.strategy == spec.baseline), best)
    texts = [
        f"{spec.title_of(level.strategy)}, {sentences.with_interval(level.iqm, level.runs)}"
        for level in ([best] if best is base else [best, base])
    ]
    sure = "one run each" if best.runs == 1 else f"in brackets 95 % intervals, {counted(best.runs, 'seed')} each"
    return f"Highest measured {sentences.MEASURE_PHRASES[JUDGED]}: {'; '.join(texts)}; {sure}."


def _of_levels(levels: Sequence[Level], spec: Spec) -> Headline:
    """Return the answer of a study that compares nothing: the average return of each strategy."""
    several = len({level.cell for level in levels}) > 1
    texts = [
        f"{spec.title_of(level.strategy)}{f' on {spec.place_of(*level.cell)}' if several else ''}: "
        f"{sentences.with_interval(level.iqm, level.runs)}"
        for level in levels
    ]
    runs = max(level.runs for level in levels)
    sure = "One run each" if runs == 1 else f"95 % intervals; {runs:,} seeds each"
    text = "; ".join(texts[:MOST_ROWS])
    return Headline(f"{sentences.MEASURE_TITLES[JUDGED]} of {text}.", f"{sure}; nothing is compared.")


def row(difference: Difference, spec: Spec) -> str:
    """Return one comparison with the baseline as a line: "A vs B", the verdict, its numbers."""
    d = difference
    titles = sentences.titled((d.strategy, d.baseline), spec)
    where = f"{spec.place_of(*d.cell)}: " if len(spec.environments) > 1 or spec.names_learners else ""
    what = f"{where}{sentences.versus(*titles)}, {sentences.MEASURE_PHRASES[d.measure]}"
    word = sentences.in_words(sentences.verdict(d), sentences.bounds(d))
    if d.pairs == 1:
        return sentences.capital(f"{what}: {word}, {sentences.effect(d.iqm)}; one pair has no interval.")
    reported = d.reported
    excludes = "; the interval excludes 0, but p is above 0.05" if word == "inconclusive" and not d.covers_zero else ""
    return sentences.capital(
        f"{what}: {word}, {sentences.effect(reported.interval)} ({reported.label} interval "
        f"{sentences.effect_interval(reported.interval, d.pairs)}; {counted(d.pairs, 'pair')}; "
        f"p {equals_p(d.p_max_t)}, corrected{excludes})."
    )
