# SPDX-License-Identifier: Apache-2.0
"""An image server (Pillow): photographs come in over HTTP, thumbnails are made, and kept until they are not asked for."""

import http.client
import http.server
import io
import random
import threading

import marks
from PIL import Image

kept, lock = {}, threading.Lock()


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        picture = Image.open(io.BytesIO(self.rfile.read(int(self.headers["Content-Length"])))).convert("RGB")
        sizes = {}
        for side in (480, 240, 96):
            small = picture.copy()
            small.thumbnail((side, side))
            out = io.BytesIO()
            small.save(out, "JPEG", quality=80)
            sizes[side] = out.getvalue()
        with lock:
            kept[self.path] = sizes
        self.send_response(200)
        self.send_header("Content-Length", str(len(sizes[96])))
        self.end_headers()
        self.wfile.write(sizes[96])

    def log_message(self, *words):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
noise = Image.effect_noise((1200, 1200), 60)


def client(seed, number, requests):
    choose = random.Random(seed)
    connection = http.client.HTTPConnection(*server.server_address)
    for request in range(requests):
        width, height = choose.randrange(300, 1200), choose.randrange(300, 1200)
        photograph = io.BytesIO()
        noise.crop((0, 0, width, height)).save(photograph, "JPEG")
        connection.request("POST", f"/{number}/{request}", photograph.getvalue())
        connection.getresponse().read()
    connection.close()


def load(choose, cycle):
    clients = [
        threading.Thread(target=client, args=(choose.random(), f"{cycle}/{number}", marks.scaled(80)))
        for number in range(8)
    ]
    for each in clients:
        each.start()
    for each in clients:
        each.join()


def drop(choose, cycle):
    for name in choose.sample(sorted(kept), len(kept) * 9 // 10):
        del kept[name]


marks.run(load, drop)
