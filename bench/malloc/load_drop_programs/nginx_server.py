# SPDX-License-Identifier: Apache-2.0
"""nginx on a port, one worker, without files outside a folder of its own: nginx_server.py PORT."""

import os
import sys
import tempfile

folder = tempfile.mkdtemp(prefix="memoir-nginx-")
paths = "".join(
    f"{name}_temp_path {folder}/{name};\n" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
)
with open(f"{folder}/nginx.conf", "w") as configuration:
    configuration.write(
        f"pid {folder}/pid;\nerror_log {folder}/errors;\ndaemon off;\nworker_processes 1;\n"
        "events { worker_connections 9000; }\n"
        f"http {{\naccess_log off;\n{paths}"
        "client_body_timeout 600s;\nclient_body_buffer_size 64k;\nlarge_client_header_buffers 8 16k;\n"
        f"server {{ listen 127.0.0.1:{int(sys.argv[1])} backlog=4096; location / {{ proxy_pass http://127.0.0.1:1; }} }}\n}}\n"
    )
if os.geteuid() == 0:  # workers stay who started them
    with open(f"{folder}/nginx.conf", "a") as configuration:
        configuration.write("user root;\n")
os.execvp("nginx", ["nginx", "-p", folder, "-e", f"{folder}/errors", "-c", f"{folder}/nginx.conf"])
