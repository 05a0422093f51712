// SPDX-License-Identifier: Apache-2.0
//
// A graph allocator for ggml that plans: one file to copy, over ggml's public headers and memoir::plan. It
// stands where ggml_gallocr stands:
//
//   memoir_ggml::GraphAllocator allocator(ggml_backend_get_default_buffer_type(backend));
//   if (!allocator.allocate(graph)) return false;   // instead of ggml_gallocr_alloc_graph()
//   ggml_backend_graph_compute(backend, graph);
//
// What ggml_gallocr would place is placed: tensors without data, views with those they look into; the results
// of operators that can work in place take an operand's place where it is read for the last time. Where
// ggml_gallocr needs less, or the plan does not fit into one buffer of the back end, ggml_gallocr allocates.
// A graph that is as the one before is not planned again. Not thread-safe.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "memoir/plan/search/auto.h"

namespace memoir_ggml {

class GraphAllocator {
 public:
  /// `deadline_s`: seconds that a plan may search at most, unless it is proven before.
  explicit GraphAllocator(ggml_backend_buffer_type_t type, double deadline_s = 0.2)
      : type_(type), deadline_s_(deadline_s), theirs_(ggml_gallocr_new(type)) {}
  ~GraphAllocator() {
    ggml_backend_buffer_free(buffer_);
    ggml_gallocr_free(theirs_);
  }
  GraphAllocator(const GraphAllocator&) = delete;
  GraphAllocator& operator=(const GraphAllocator&) = delete;

  /// Gives every tensor of the graph its place, until the next call. False without memory.
  bool allocate(ggml_cgraph* graph) {
    find_storages(graph);
    if (problem_ != planned_ || !has_plan_) plan(graph);
    if (by_theirs_) return ggml_gallocr_alloc_graph(theirs_, graph);
    if (buffer_ == nullptr || ggml_backend_buffer_get_size(buffer_) < plan_.arena_size) {
      ggml_backend_buffer_free(buffer_);
      buffer_ = ggml_backend_buft_alloc_buffer(type_, plan_.arena_size);
      if (buffer_ == nullptr) return false;
      ggml_backend_buffer_set_usage(buffer_, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    } else {
      ggml_backend_buffer_reset(buffer_);
    }
    char* const base = static_cast<char*>(ggml_backend_buffer_get_base(buffer_));
    for (const auto& [tensor, storage] : members_) {
      char* const address = base + plan_.offsets[storage];
      if (ggml_backend_tensor_alloc(buffer_, tensor, address) != GGML_STATUS_SUCCESS) return false;
    }
    return std::all_of(views_.begin(), views_.end(), [](ggml_tensor* view) {
      if (view->buffer != nullptr || view->view_src->buffer == nullptr) return true;
      return ggml_backend_view_init(view) == GGML_STATUS_SUCCESS;
    });
  }

  /// Bytes that the last graph needs, by this plan or by ggml_gallocr's where that is smaller.
  std::size_t needed() const noexcept { return by_theirs_ ? their_size_ : plan_.arena_size; }
  /// Bytes that ggml_gallocr needs for it.
  std::size_t needed_by_ggml() const noexcept { return their_size_; }
  /// Bytes that live at once in it: no plan needs less.
  std::size_t load() const { return problem_.empty() ? 0 : memoir::load(problem_); }

 private:
  static ggml_tensor* root_of(ggml_tensor* tensor) noexcept {
    return tensor->view_src != nullptr ? tensor->view_src : tensor;
  }
  static bool is_ours(const ggml_tensor* root) noexcept {
    return root->data == nullptr && root->buffer == nullptr;
  }
  static bool same_layout(const ggml_tensor* a, const ggml_tensor* b) noexcept {
    return a->type == b->type && std::equal(a->ne, a->ne + GGML_MAX_DIMS, b->ne) &&
           std::equal(a->nb, a->nb + GGML_MAX_DIMS, b->nb);
  }
  static bool can_work_in_place(ggml_op op) {
    constexpr std::array<std::string_view, 20> kNames = {"SCALE",         "DIAG_MASK_ZERO",
                                                         "DIAG_MASK_INF", "ADD",
                                                         "ADD1",          "SUB",
                                                         "MUL",           "DIV",
                                                         "SQR",           "SQRT",
                                                         "LOG",           "UNARY",
                                                         "ROPE",          "ROPE_BACK",
                                                         "FILL",          "SILU_BACK",
                                                         "RMS_NORM",      "RMS_NORM_BACK",
                                                         "SOFT_MAX",      "SOFT_MAX_BACK"};
    return std::find(kNames.begin(), kNames.end(), ggml_op_name(op)) != kNames.end();
  }

  /// Who lies where is the same for tensors of one storage; lifetimes count nodes.
  void find_storages(ggml_cgraph* graph) {
    const int nodes = ggml_graph_n_nodes(graph);
    last_use_.clear();
    for (int index = 0; index < nodes; ++index) {
      ggml_tensor* const node = ggml_graph_node(graph, index);
      for (ggml_tensor* source : node->src) {
        if (source != nullptr) last_use_[root_of(source)] = index;
      }
      if (node->view_src != nullptr) last_use_[node->view_src] = index;
    }
    members_.clear();
    views_.clear();
    storage_of_.clear();
    problem_.clear();
    end_ = static_cast<memoir::Tick>(nodes) + 1;
    for (int index = 0; index < nodes; ++index) {
      ggml_tensor* const node = ggml_graph_node(graph, index);
      for (ggml_tensor* source : node->src) {
        if (source != nullptr) enter(source, 0);  // no node made it before: its data is there from the start
      }
      enter(node, index);
    }
  }

  void enter(ggml_tensor* tensor, int index) {
    ggml_tensor* const root = root_of(tensor);
    if (tensor != root) views_.push_back(tensor);
    if (!is_ours(root)) return;
    const auto used = last_use_.find(root);
    // What is an output, or what nobody reads, is there at the end.
    const bool stays = used == last_use_.end() || (root->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
    const bool is_output = (tensor->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
    const auto end = stays || is_output ? end_ : static_cast<memoir::Tick>(used->second) + 1;
    if (const auto known = storage_of_.find(root); known != storage_of_.end()) {
      auto& lifetime = problem_[known->second].lifetime;
      lifetime.end = std::max(lifetime.end, end);
      return;
    }
    std::size_t storage = problem_.size();
    const memoir::Size size = std::max<std::size_t>(ggml_backend_buft_get_alloc_size(type_, root), 1);
    const bool is_input = (root->flags & GGML_TENSOR_FLAG_INPUT) != 0;
    if (ggml_tensor* const operand = is_input ? nullptr : taken_over(root, index)) {
      storage = storage_of_[root_of(operand)];
      problem_[storage].size = std::max(problem_[storage].size, size);
      problem_[storage].lifetime.end = std::max(problem_[storage].lifetime.end, end);
    } else {
      const auto begin = static_cast<memoir::Tick>(is_input ? 0 : index);
      problem_.push_back({{begin, std::max(end, begin + 1)}, size, ggml_backend_buft_get_alignment(type_)});
    }
    storage_of_[root] = storage;
    members_.push_back({root, storage});
  }

  /// The operand whose place the node takes: all of it is read here for the last time, and by this node once.
  ggml_tensor* taken_over(const ggml_tensor* node, int index) const {
    if (!can_work_in_place(node->op)) return nullptr;
    for (ggml_tensor* operand : node->src) {
      if (operand == nullptr || operand->view_offs != 0 || !same_layout(node, operand)) continue;
      ggml_tensor* const root = root_of(operand);
      const auto storage = storage_of_.find(root);
      if (storage == storage_of_.end() || last_use_.at(root) != index || root == node) continue;
      if (problem_[storage->second].lifetime.end != static_cast<memoir::Tick>(index) + 1) continue;
      const auto reads = std::count_if(std::begin(node->src), std::end(node->src), [&](ggml_tensor* source) {
        const auto of = source == nullptr ? storage_of_.end() : storage_of_.find(root_of(source));
        return of != storage_of_.end() && of->second == storage->second;
      });
      if (reads == 1) return operand;
    }
    return nullptr;
  }

  void plan(ggml_cgraph* graph) {
    has_plan_ = true;
    planned_ = problem_;
    their_size_ = 0;
    ggml_gallocr_reserve_n_size(theirs_, graph, nullptr, nullptr, &their_size_);
    by_theirs_ = true;
    try {
      memoir::SearchOptions options;
      options.deadline_s = deadline_s_;
      options.threads = 1;
      plan_ = memoir::plan_auto(problem_, options).plan;
      by_theirs_ = plan_.arena_size > their_size_ || plan_.arena_size > ggml_backend_buft_get_max_size(type_);
    } catch (const std::exception&) {  // ggml_gallocr answers what cannot be planned
    }
    if (by_theirs_) has_plan_ = ggml_gallocr_reserve(theirs_, graph);
  }

  const ggml_backend_buffer_type_t type_;
  const double deadline_s_;
  const ggml_gallocr_t theirs_;
  ggml_backend_buffer_t buffer_ = nullptr;
  memoir::Problem problem_, planned_;  // of the graph at hand, and of the one that plan_ is for
  memoir::Plan plan_;
  bool has_plan_ = false, by_theirs_ = false;
  std::size_t their_size_ = 0;
  memoir::Tick end_ = 0;
  std::unordered_map<const ggml_tensor*, int> last_use_;  // of a root, the last node that reads it or a view
  std::unordered_map<const ggml_tensor*, std::size_t> storage_of_;  // of a root, an index into problem_
  std::vector<std::pair<ggml_tensor*, std::size_t>> members_;       // roots and their storages
  std::vector<ggml_tensor*> views_;
};

}  // namespace memoir_ggml
