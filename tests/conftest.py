# SPDX-License-Identifier: Apache-2.0
import signal

# A job in the background of a script starts with SIGINT ignored, and so do its children: tests that send it would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
