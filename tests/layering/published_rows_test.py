#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""What predict.py makes of rows and clusters, beside a program that answers at once."""

import contextlib
import copy
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "published"))
import check  # noqa: E402
import predict  # noqa: E402

ANSWER = """#!/bin/sh
echo '{"step_seconds": 1, "limited_by": "products"}'
"""


class PredictTest(unittest.TestCase):
    def predicted(self, change):
        """Exit status, output and errors for the first two expressible rows, as `change` leaves them."""
        rows = [copy.deepcopy(row) for row in check.load("runs")["runs"] if row["expressible"] is True][:2]
        change(rows)
        load = check.load
        out, errors = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "zero_train"
            program.write_text(ANSWER)
            program.chmod(0o755)
            with mock.patch.object(check, "load", lambda name: {"runs": rows} if name == "runs" else load(name)), \
                    mock.patch.object(sys, "argv", ["predict.py", str(program)]), \
                    contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                return predict.main(), out.getvalue(), errors.getvalue()

    def test_good_rows_stand_beside_their_prediction(self):
        status, out, errors = self.predicted(lambda rows: None)
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("2 rows: mean error", out)

    def test_a_row_that_lacks_a_key_is_named_and_the_others_go_on(self):
        status, out, errors = self.predicted(lambda rows: rows[0].pop("sequence"))
        self.assertEqual(status, 1)
        self.assertIn("lacks sequence\n", errors)
        self.assertIn("1 rows: mean error", out)

    def test_a_row_that_contradicts_itself_is_named(self):
        status, _, errors = self.predicted(lambda rows: rows[1].update(batch=7))
        self.assertEqual(status, 1)
        self.assertIn("batch: found 7", errors)

    def test_links_have_the_latencies_of_their_kind(self):
        files = {**check.load("models"), **check.load("devices")}

        def links(cluster):
            return predict.cluster_of({"cluster": cluster, "hosts": 1, "devices": 4}, files)["links"]

        self.assertEqual(links("llmq-4090")["within_host"]["latency"], "5.7us")
        self.assertNotIn("between_hosts", links("llmq-4090"))
        self.assertEqual(links("selene")["within_host"]["latency"], "3.4us")
        self.assertEqual(links("selene")["between_hosts"]["latency"], "14us")
        self.assertEqual(links("selene")["collective"], "8.4us")


if __name__ == "__main__":
    unittest.main()
