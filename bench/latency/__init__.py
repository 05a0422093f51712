# SPDX-License-Identifier: Apache-2.0
"""What bench/torch_latency.py is made of: variants, worker, session, schedule, results, summary, report, figures."""
