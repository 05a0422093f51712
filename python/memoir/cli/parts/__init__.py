# SPDX-License-Identifier: Apache-2.0
"""Parts of verbs: the ways in which one verb goes (plan_budget, show_trace), and what several verbs share (arguments)."""
