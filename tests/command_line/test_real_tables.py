"""Real tables, where they are: ages by education, a column of zeros, measurements of patients."""

import numpy as np
import pytest

import dpjax

MEASUREMENTS = ("1", "2", "3", "4", "5", "6")


def padded(values, labels, order):
    """Groups in this order, padded to the largest, with their sizes."""
    members = [values[labels == label] for label in order]
    count = np.array([group.size for group in members], np.int32)
    records = np.zeros((len(members), count.max()))
    for i, group in enumerate(members):
        records[i, : group.size] = group
    return records, count


def assert_rows_are_the_distribution(rows, profile, count):
    distribution = dpjax.piecewise_laplace(profile, np.array([[1.0]]))
    np.testing.assert_array_equal([row["present"] for row in rows], count)
    # Another program, which may round otherwise in the last places of float32.
    np.testing.assert_allclose([row["mean_abs_error"] for row in rows], distribution.mean_abs_error(profile.value)[0], rtol=1e-6)
    ends = np.transpose([row["interval95"] for row in rows])
    np.testing.assert_allclose(ends, np.stack(distribution.interval(0.95))[:, 0], rtol=1e-6)
    assert all(row["missing"] == 0 for row in rows)


@pytest.mark.slow
def test_ages_by_education(answer, run, data_folder):
    file = data_folder / "pums_california_1000" / "pums_1000.csv"
    command = ("median", file, "--column", "age", "--by", "educ", "--lower", 0, "--upper", 100, "--neighbors", "add_remove")
    rows = answer(*command, "--seed", 1)["rows"]
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    ages, education = table[:, 0], table[:, 2]
    order = np.unique(education)
    assert [int(row["group"]) for row in rows] == order.tolist()
    records, count = padded(ages, education, order)
    assert_rows_are_the_distribution(rows, dpjax.median(records, lower=0, upper=100, neighbors="add_remove", count=count), count)
    for row, level in zip(rows, order, strict=True):
        group = ages[education == level]
        np.testing.assert_allclose(row["tied_share"], np.mean(group == np.median(group)))
    assert "parallel composition" in run(*command).words


@pytest.mark.slow
def test_capital_gain_is_tied(answer, run, data_folder):
    file = data_folder / "uci_adult" / "adult_train_trimmed.csv"
    command = ("median", file, "--column", "capital_gain", "--lower", 0, "--upper", 100_000, "--neighbors", "add_remove")
    assert "* 92 % of the records are tied" in run(*command).words
    (row,) = answer(*command, "--resolution", 1)["rows"]
    assert row["tied_share"] > 0.9
    assert row["mean_abs_error"] < 1e-6


@pytest.mark.slow
def test_six_measurements_by_class(answer, data_folder):
    file = data_folder / "vertebral_column" / "column_2C.dat"
    command = ("quantile", file, "--quantile", 0.9, "--no-header", "--delimiter", "space", "--column", *MEASUREMENTS, "--by", 7)
    rows = answer(*command, "--lower", -50, "--upper", 500, "--neighbors", "swap", "--draws", 3)["rows"]
    table = np.genfromtxt(file, dtype=str)
    assert [(row["column"], row["group"]) for row in rows] == [(column, group) for column in MEASUREMENTS for group in ("AB", "NO")]
    for i, column in enumerate(MEASUREMENTS):
        records, count = padded(table[:, i].astype(float), table[:, 6], ("AB", "NO"))
        profile = dpjax.quantile(records, 0.9, lower=-50, upper=500, neighbors="swap", count=count)
        assert_rows_are_the_distribution([row for row in rows if row["column"] == column], profile, count)
