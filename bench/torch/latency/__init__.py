# SPDX-License-Identifier: Apache-2.0
"""What bench/torch/torch_latency.py is made of, from the allocators' processes to the report."""
