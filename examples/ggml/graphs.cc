// SPDX-License-Identifier: Apache-2.0
//
// Three graphs of ggml's, allocated by ggml_gallocr and by memoir_ggml.h: bytes, seconds, and that both
// compute the same.
//
//   cmake -S examples/ggml -B build/ggml -DCMAKE_PREFIX_PATH="where memoir and ggml are installed"
//   cmake --build build/ggml && build/ggml/ggml_graphs
#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "memoir_ggml.h"

namespace {

using Seconds = std::chrono::duration<double>;

/// A graph, its inputs and weights; the data of those is set by their number.
struct Model {
  ggml_context* context;
  ggml_cgraph* graph;
  std::vector<ggml_tensor*> given;

  explicit Model(std::size_t tensors)
      : context(ggml_init(
            {tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(tensors, false), nullptr, true})),
        graph(ggml_new_graph_custom(context, tensors, false)) {}
  ~Model() { ggml_free(context); }

  ggml_tensor* input(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1, std::int64_t d = 1) {
    given.push_back(ggml_new_tensor_4d(context, GGML_TYPE_F32, a, b, c, d));
    ggml_set_input(given.back());
    return given.back();
  }
  ggml_tensor* conv(ggml_tensor* x, std::int64_t width) {
    ggml_tensor* const columns =
        ggml_im2col(context, input(3, 3, x->ne[2], width), x, 1, 1, 1, 1, 1, 1, true, GGML_TYPE_F32);
    ggml_tensor* const rows =
        ggml_reshape_2d(context, columns, columns->ne[0], columns->ne[1] * columns->ne[2]);
    ggml_tensor* const y = ggml_mul_mat(context, rows, input(columns->ne[0], width));
    return ggml_relu(context, ggml_reshape_4d(context, y, x->ne[0], x->ne[1], width, 1));
  }
  void finish(ggml_tensor* y) {
    ggml_set_output(y);
    ggml_build_forward_expand(graph, y);
  }
};

void dense(Model& model) {
  ggml_tensor* x = model.input(32, 32, 8);
  for (int layer = 0; layer < 10; ++layer) x = ggml_concat(model.context, x, model.conv(x, 8), 2);
  model.finish(ggml_sum(model.context, x));
}

void unet(Model& model) {
  ggml_context* const c = model.context;
  ggml_tensor* x = model.input(64, 64, 8);
  std::vector<ggml_tensor*> kept;
  for (const int width : {16, 32, 64}) {
    x = model.conv(model.conv(x, width), width);
    kept.push_back(x);
    x = ggml_pool_2d(c, x, GGML_OP_POOL_MAX, 2, 2, 2, 2, 0, 0);
  }
  for (int level = 2; level >= 0; --level) {
    x = ggml_concat(c, ggml_upscale(c, model.conv(x, 16 << level), 2, GGML_SCALE_MODE_NEAREST), kept[level],
                    2);
    x = model.conv(model.conv(x, 16 << level), 16 << level);
  }
  model.finish(model.conv(x, 3));
}

void decoder(Model& model) {
  ggml_context* const c = model.context;
  constexpr int kWidth = 128, kTokens = 64, kHeads = 4;
  ggml_tensor* x = model.input(kWidth, kTokens);
  for (int layer = 0; layer < 4; ++layer) {
    ggml_tensor* const in = ggml_rms_norm(c, x, 1e-5f);
    ggml_tensor* heads[3];
    for (ggml_tensor*& head : heads) {
      head = ggml_mul_mat(c, model.input(kWidth, kWidth), in);
      head = ggml_permute(c, ggml_reshape_3d(c, head, kWidth / kHeads, kHeads, kTokens), 0, 2, 1, 3);
    }
    ggml_tensor* weights = ggml_mul_mat(c, ggml_cont(c, heads[0]), ggml_cont(c, heads[1]));
    weights = ggml_soft_max(c, ggml_diag_mask_inf(c, ggml_scale(c, weights, 0.2f), 0));
    ggml_tensor* y = ggml_mul_mat(c, ggml_cont(c, ggml_transpose(c, heads[2])), weights);
    y = ggml_cont_2d(c, ggml_permute(c, y, 0, 2, 1, 3), kWidth, kTokens);
    x = ggml_add(c, x, ggml_mul_mat(c, model.input(kWidth, kWidth), y));
    y = ggml_gelu(c, ggml_mul_mat(c, model.input(kWidth, 4 * kWidth), ggml_rms_norm(c, x, 1e-5f)));
    x = ggml_add(c, x, ggml_mul_mat(c, model.input(4 * kWidth, kWidth), y));
  }
  model.finish(x);
}

std::vector<float> compute(ggml_backend_t backend, Model& model) {
  for (std::size_t index = 0; index < model.given.size(); ++index) {
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(model.given[index])));
    for (std::size_t at = 0; at < values.size(); ++at)
      values[at] = std::sin(static_cast<float>(at * 7 + index * 131)) * 0.1f;
    ggml_backend_tensor_set(model.given[index], values.data(), 0, ggml_nbytes(model.given[index]));
  }
  ggml_backend_graph_compute(backend, model.graph);
  ggml_tensor* const y = ggml_graph_node(model.graph, -1);
  std::vector<float> out(static_cast<std::size_t>(ggml_nelements(y)));
  ggml_backend_tensor_get(y, out.data(), 0, ggml_nbytes(y));
  return out;
}

bool compare(ggml_backend_t backend, const char* name, const std::function<void(Model&)>& make) {
  const ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend);
  Model theirs(2000), ours(2000), again(2000);
  for (Model* model : {&theirs, &ours, &again}) make(*model);
  const ggml_gallocr_t galloc = ggml_gallocr_new(type);
  memoir_ggml::GraphAllocator allocator(type);
  if (!ggml_gallocr_alloc_graph(galloc, theirs.graph)) return false;
  const std::vector<float> expected = compute(backend, theirs);
  const auto began = std::chrono::steady_clock::now();
  if (!allocator.allocate(ours.graph)) return false;
  const Seconds first = std::chrono::steady_clock::now() - began;
  bool same = compute(backend, ours) == expected;
  const auto began_again = std::chrono::steady_clock::now();
  if (!allocator.allocate(again.graph)) return false;
  const Seconds second = std::chrono::steady_clock::now() - began_again;
  same = same && compute(backend, again) == expected;
  std::printf(
      "%-8s ggml_gallocr %9zu  memoir %9zu  load %9zu  %.3f x  planned in %.2f ms, again %.3f ms, outputs "
      "%s\n",
      name, allocator.needed_by_ggml(), allocator.needed(), allocator.load(),
      static_cast<double>(allocator.needed_by_ggml()) / static_cast<double>(allocator.needed()),
      first.count() * 1e3, second.count() * 1e3, same ? "equal" : "DIFFER");
  ggml_gallocr_free(galloc);
  return same && allocator.needed() <= allocator.needed_by_ggml();
}

}  // namespace

int main() {
  const ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, 1);
  bool good = compare(backend, "dense", dense);
  good = compare(backend, "unet", unet) && good;
  good = compare(backend, "decoder", decoder) && good;
  ggml_backend_free(backend);
  return good ? 0 : 1;
}
