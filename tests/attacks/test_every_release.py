"""Every release has its exhaustive audit: each public function and statistic, and the test that
takes all pairs of small datasets.

The audits are with the releases; a release that is added without one, or an audit that goes, fails
here.
"""

import inspect
import pathlib
import re

import pytest

from dpjax import release

TESTS = pathlib.Path(__file__).parent.parent
ALL = "test_probabilities_losses_and_ranges_of_all_small_datasets"
AUDITS = {
    (
        "release/test_privacy.py",
        ALL,
    ): "median Median quantile Quantile order_statistic OrderStatistic maximum Maximum "
    "nonnegative_sum "
    "NonnegativeSum distinct_count DistinctCount sum Sum mean Mean exact_distribution",
    ("release/test_privacy.py", "test_persons_with_many_records_count_once"): "user_sum",
    ("release/test_privacy.py", "test_modes_of_all_datasets"): "mode Mode",
    (
        "release/test_privacy.py",
        "test_counts_and_histograms_of_all_datasets",
    ): "count Count histogram Histogram",
    (
        "several_quantiles/test_exact_joint.py",
        "test_no_neighbor_loses_more_than_epsilon",
    ): "joint_quantiles Quantiles",
    (
        "several_quantiles/test_exact_joint.py",
        "test_intervals_are_two_joint_quantiles_with_a_coverage",
    ): "confidence_interval ConfidenceInterval",
    (
        "several_quantiles/test_exact_recursive.py",
        "test_no_neighbor_loses_more_than_epsilon",
    ): "recursive_quantiles Quantiles",
    (
        "several_quantiles/test_exact_nested.py",
        "test_no_record_costs_more_than_epsilon",
    ): "nested_quantiles private_quantiles",
    ("release/test_metric.py", "test_noisy_answers_keep_to_the_metric_exactly"): "metric_laplace",
    ("release/test_metric.py", "test_choices_keep_to_the_metric"): "metric_choice small_db",
    ("release/test_candidates.py", "test_draws_follow_the_exponential_mechanism"): "release_choice",
}


def releases():
    """What draws for publication, and the statistics that it can be asked of."""
    found = {name: getattr(release, name) for name in release.__all__}
    functions = {name for name, value in found.items() if inspect.isfunction(value)}
    kinds = {
        name
        for name, value in found.items()
        if inspect.isclass(value) and issubclass(value, release.Statistic)
    }
    return (functions | kinds) - {"Statistic"}


def missing(audits):
    """Releases without an audit, and audits that are not there."""
    covered = {name for names in audits.values() for name in names.split()}
    gone = [
        key
        for key in audits
        if not re.search(rf"^def {key[1]}\(", (TESTS / key[0]).read_text(), flags=re.MULTILINE)
    ]
    return releases() - covered, gone


def test_every_release_is_audited():
    assert missing(AUDITS) == (set(), [])


@pytest.mark.parametrize("left_out", AUDITS)
def test_control_an_audit_that_is_left_out_is_missing(left_out):
    rest = {key: names for key, names in AUDITS.items() if key != left_out}
    renamed = {**rest, (left_out[0], left_out[1] + "_gone"): AUDITS[left_out]}
    assert missing(renamed)[1] == [(left_out[0], left_out[1] + "_gone")]
    if "Quantiles" not in AUDITS[left_out]:
        assert missing(rest)[0] == set(AUDITS[left_out].split())
