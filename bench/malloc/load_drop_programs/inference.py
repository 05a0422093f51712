# SPDX-License-Identifier: Apache-2.0
"""An inference server (PyTorch on CPU): requests of many lengths, answers kept until they are fetched."""

import threading

import marks
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
answers, lock = [], threading.Lock()


def serve(lengths):
    for length in lengths:
        with torch.inference_mode():
            answer = model(torch.zeros(1, length, 256))
        with lock:
            answers.append(answer)


def load(choose, cycle):
    workers = []
    for _ in range(4):
        lengths = [choose.randrange(16, 512) for _ in range(marks.scaled(60))]
        workers.append(threading.Thread(target=serve, args=(lengths,)))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def drop(choose, cycle):
    choose.shuffle(answers)
    del answers[len(answers) // 10 :]


marks.run(load, drop)
