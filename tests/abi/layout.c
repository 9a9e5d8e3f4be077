// layout.c - the binary contract in numbers: sizes, offsets and constants of
// the installed headers, as the first release of this ABI major has them.  A
// line here never changes and never goes; what is appended gets a line of its
// own, and the sizes grow (docs/ABI.md).  Compiling this file is the test.
#include <stdio.h>

#include <genai/executor.h>
#include <genai/genai.h>
#include <genai/text.h>
#include <genai/engine.h>

#define SIZE(type, bytes)                                                      \
	_Static_assert(sizeof(struct type) == (bytes), "size of " #type)
#define AT(type, field, bytes)                                                 \
	_Static_assert(offsetof(struct type, field) == (bytes),                \
		       "offset of " #type "." #field)
#define IS(name, value) _Static_assert((name) == (value), "value of " #name)

SIZE(genai_error, 592);
AT(genai_error, size, 0);
AT(genai_error, code, 4);
AT(genai_error, line, 8);
AT(genai_error, node, 12);
AT(genai_error, module, 16);
AT(genai_error, file, 48);
AT(genai_error, text, 80);

SIZE(genai_range, 16);
AT(genai_range, addr, 0);
AT(genai_range, bytes, 8);

SIZE(genai_view, 280);
AT(genai_view, size, 0);
AT(genai_view, dtype, 4);
AT(genai_view, rank, 8);
AT(genai_view, reserved, 12);
AT(genai_view, addr, 16);
AT(genai_view, dims, 24);
AT(genai_view, strides, 152);

SIZE(genai_ticket, 40);
AT(genai_ticket, size, 0);
AT(genai_ticket, device, 4);
AT(genai_ticket, generation, 8);
AT(genai_ticket, seal, 16);
AT(genai_ticket, range, 24);

SIZE(genai_host, 136);
AT(genai_host, size, 0);
AT(genai_host, core_abi, 4);
AT(genai_host, ctx, 8);
AT(genai_host, alloc, 16);
AT(genai_host, realloc, 24);
AT(genai_host, free, 32);
AT(genai_host, log, 40);
AT(genai_host, error_set, 48);
AT(genai_host, config_get_str, 56);
AT(genai_host, config_get_u64, 64);
AT(genai_host, config_get_bool, 72);
AT(genai_host, clock_ns, 80);
AT(genai_host, thread_create, 88);
AT(genai_host, thread_join, 96);
AT(genai_host, counter_add, 104);
AT(genai_host, ticket_check, 112);
AT(genai_host, log_v, 120);
AT(genai_host, error_set_v, 128);

SIZE(genai_init_params, 16);
AT(genai_init_params, size, 0);
AT(genai_init_params, device, 4);
AT(genai_init_params, device_limit, 8);

SIZE(genai_iface, 32);
AT(genai_iface, type, 0);
AT(genai_iface, name, 8);
AT(genai_iface, version, 16);
AT(genai_iface, reserved, 20);
AT(genai_iface, ops, 24);

SIZE(genai_config_key, 40);
AT(genai_config_key, name, 0);
AT(genai_config_key, default_value, 8);
AT(genai_config_key, kind, 16);
AT(genai_config_key, reserved, 20);
AT(genai_config_key, choices, 24);
AT(genai_config_key, help, 32);

SIZE(genai_module_block, 104);
AT(genai_module_block, magic, 0);
AT(genai_module_block, size, 8);
AT(genai_module_block, abi_major, 12);
AT(genai_module_block, abi_minor, 14);
AT(genai_module_block, min_core_minor, 16);
AT(genai_module_block, reserved, 18);
AT(genai_module_block, flags, 20);
AT(genai_module_block, build, 24);
AT(genai_module_block, n_ifaces, 28);
AT(genai_module_block, name, 32);
AT(genai_module_block, version, 40);
AT(genai_module_block, licence, 48);
AT(genai_module_block, ifaces, 56);
AT(genai_module_block, init, 64);
AT(genai_module_block, fini, 72);
AT(genai_module_block, keys, 80);
AT(genai_module_block, n_keys, 88);
AT(genai_module_block, iface_stride, 92);
AT(genai_module_block, key_stride, 96);
AT(genai_module_block, reserved2, 100);

SIZE(genai_point, 16);
AT(genai_point, stream, 0);
AT(genai_point, value, 8);

SIZE(genai_mem, 32);
AT(genai_mem, size, 0);
AT(genai_mem, kind, 4);
AT(genai_mem, range, 8);
AT(genai_mem, host, 24);

SIZE(genai_access, 24);
AT(genai_access, addr, 0);
AT(genai_access, bytes, 8);
AT(genai_access, flags, 16);
AT(genai_access, reserved, 20);

SIZE(genai_work, 32);
AT(genai_work, size, 0);
AT(genai_work, node, 4);
AT(genai_work, name, 8);
AT(genai_work, fn, 16);
AT(genai_work, ctx, 24);

SIZE(genai_stream_caps, 160);
AT(genai_stream_caps, size, 0);
AT(genai_stream_caps, flags, 4);
AT(genai_stream_caps, device_kind, 8);
AT(genai_stream_caps, device_name, 24);
AT(genai_stream_caps, total_bytes, 88);
AT(genai_stream_caps, free_bytes, 96);
AT(genai_stream_caps, alignment, 104);
AT(genai_stream_caps, granule, 112);
AT(genai_stream_caps, link_bytes_per_s, 120);
AT(genai_stream_caps, memory_bytes_per_s, 128);
AT(genai_stream_caps, copy_latency_ns, 136);
AT(genai_stream_caps, launch_ns, 144);
AT(genai_stream_caps, in_place_bytes_per_s, 152);

SIZE(genai_stream_stats, 72);
AT(genai_stream_stats, size, 0);
AT(genai_stream_stats, reserved, 4);
AT(genai_stream_stats, launches, 8);
AT(genai_stream_stats, copies, 16);
AT(genai_stream_stats, h2d_bytes, 24);
AT(genai_stream_stats, d2h_bytes, 32);
AT(genai_stream_stats, d2d_bytes, 40);
AT(genai_stream_stats, graph_launches, 48);
AT(genai_stream_stats, simulated_ns, 56);
AT(genai_stream_stats, device_used_bytes, 64);

SIZE(genai_stream_ops, 216);
AT(genai_stream_ops, size, 0);
AT(genai_stream_ops, version, 4);
AT(genai_stream_ops, reserved, 6);
AT(genai_stream_ops, caps, 8);
AT(genai_stream_ops, alloc, 16);
AT(genai_stream_ops, free, 24);
AT(genai_stream_ops, reserve, 32);
AT(genai_stream_ops, unreserve, 40);
AT(genai_stream_ops, map, 48);
AT(genai_stream_ops, unmap, 56);
AT(genai_stream_ops, host_register, 64);
AT(genai_stream_ops, host_unregister, 72);
AT(genai_stream_ops, create, 80);
AT(genai_stream_ops, destroy, 88);
AT(genai_stream_ops, mark, 96);
AT(genai_stream_ops, wait, 104);
AT(genai_stream_ops, poll, 112);
AT(genai_stream_ops, copy, 120);
AT(genai_stream_ops, launch, 128);
AT(genai_stream_ops, launch_host, 136);
AT(genai_stream_ops, capture_begin, 144);
AT(genai_stream_ops, capture_end, 152);
AT(genai_stream_ops, capture_abort, 160);
AT(genai_stream_ops, launch_graph, 168);
AT(genai_stream_ops, graph_destroy, 176);
AT(genai_stream_ops, reset, 184);
AT(genai_stream_ops, native, 192);
AT(genai_stream_ops, stats, 200);
AT(genai_stream_ops, graph_edges, 208);
SIZE(genai_edge, 16);
AT(genai_edge, before, 0);
AT(genai_edge, after, 8);

SIZE(genai_stream_api, 16);
AT(genai_stream_api, ops, 0);
AT(genai_stream_api, self, 8);

SIZE(genai_barrier_ops, 24);
AT(genai_barrier_ops, size, 0);
AT(genai_barrier_ops, version, 4);
AT(genai_barrier_ops, reserved, 6);
AT(genai_barrier_ops, host_read, 8);
AT(genai_barrier_ops, drain, 16);

SIZE(genai_barrier_api, 16);
AT(genai_barrier_api, ops, 0);
AT(genai_barrier_api, self, 8);

SIZE(genai_file, 32);
AT(genai_file, size, 0);
AT(genai_file, flags, 4);
AT(genai_file, path, 8);
AT(genai_file, data, 16);
AT(genai_file, bytes, 24);

SIZE(genai_tensor, 160);
AT(genai_tensor, size, 0);
AT(genai_tensor, dtype, 4);
AT(genai_tensor, rank, 8);
AT(genai_tensor, file, 12);
AT(genai_tensor, offset, 16);
AT(genai_tensor, bytes, 24);
AT(genai_tensor, dims, 32);

SIZE(genai_value, 288);
AT(genai_value, size, 0);
AT(genai_value, dtype, 4);
AT(genai_value, name, 8);
AT(genai_value, rank, 16);
AT(genai_value, tensor, 20);
AT(genai_value, producer, 24);
AT(genai_value, flags, 28);
AT(genai_value, dims, 32);
AT(genai_value, symbols, 160);

SIZE(genai_attr, 88);
AT(genai_attr, size, 0);
AT(genai_attr, kind, 4);
AT(genai_attr, name, 8);
AT(genai_attr, i, 16);
AT(genai_attr, f, 24);
AT(genai_attr, s, 32);
AT(genai_attr, count, 40);
AT(genai_attr, ints, 48);
AT(genai_attr, floats, 56);
AT(genai_attr, strings, 64);
AT(genai_attr, tensor, 72);
AT(genai_attr, reserved, 76);
AT(genai_attr, graph, 80);

SIZE(genai_node, 80);
AT(genai_node, size, 0);
AT(genai_node, n_inputs, 4);
AT(genai_node, n_outputs, 8);
AT(genai_node, n_attrs, 12);
AT(genai_node, name, 16);
AT(genai_node, op, 24);
AT(genai_node, domain, 32);
AT(genai_node, opset, 40);
AT(genai_node, inputs, 48);
AT(genai_node, outputs, 56);
AT(genai_node, attrs, 64);
AT(genai_node, attr_stride, 72);
AT(genai_node, reserved, 76);

SIZE(genai_graph, 104);
AT(genai_graph, size, 0);
AT(genai_graph, n_files, 4);
AT(genai_graph, n_tensors, 8);
AT(genai_graph, n_values, 12);
AT(genai_graph, n_nodes, 16);
AT(genai_graph, n_inputs, 20);
AT(genai_graph, n_outputs, 24);
AT(genai_graph, file_stride, 28);
AT(genai_graph, tensor_stride, 32);
AT(genai_graph, value_stride, 36);
AT(genai_graph, node_stride, 40);
AT(genai_graph, reserved, 44);
AT(genai_graph, name, 48);
AT(genai_graph, files, 56);
AT(genai_graph, tensors, 64);
AT(genai_graph, values, 72);
AT(genai_graph, nodes, 80);
AT(genai_graph, inputs, 88);
AT(genai_graph, outputs, 96);

SIZE(genai_extent, 56);
AT(genai_extent, size, 0);
AT(genai_extent, reserved, 4);
AT(genai_extent, src, 8);
AT(genai_extent, src_bytes, 16);
AT(genai_extent, place, 24);
AT(genai_extent, bytes, 32);
AT(genai_extent, fill, 40);
AT(genai_extent, ctx, 48);

SIZE(genai_sweep_visit, 48);
AT(genai_sweep_visit, size, 0);
AT(genai_sweep_visit, page, 4);
AT(genai_sweep_visit, offset, 8);
AT(genai_sweep_visit, bytes, 16);
AT(genai_sweep_visit, flags, 24);
AT(genai_sweep_visit, units, 28);
AT(genai_sweep_visit, work_bytes, 32);
AT(genai_sweep_visit, units_after, 40);
AT(genai_sweep_visit, reserved, 44);

SIZE(genai_place, 16);
AT(genai_place, size, 0);
AT(genai_place, kind, 4);
AT(genai_place, addr, 8);

SIZE(genai_pager_caps, 16);
AT(genai_pager_caps, size, 0);
AT(genai_pager_caps, flags, 4);
AT(genai_pager_caps, page_bytes, 8);

SIZE(genai_pager_report, 104);
AT(genai_pager_report, size, 0);
AT(genai_pager_report, n_pages, 4);
AT(genai_pager_report, total_bytes, 8);
AT(genai_pager_report, pinned_bytes, 16);
AT(genai_pager_report, ring_bytes, 24);
AT(genai_pager_report, in_place_bytes, 32);
AT(genai_pager_report, streamed_bytes, 40);
AT(genai_pager_report, host_bytes, 48);
AT(genai_pager_report, ring_slots, 56);
AT(genai_pager_report, n_streamed, 60);
AT(genai_pager_report, slot_bytes, 64);
AT(genai_pager_report, step_ns, 72);
AT(genai_pager_report, serial_ns, 80);
AT(genai_pager_report, resident_ns, 88);
AT(genai_pager_report, read_in_place_bytes, 96);

SIZE(genai_pager_stats, 40);
AT(genai_pager_stats, size, 0);
AT(genai_pager_stats, reserved, 4);
AT(genai_pager_stats, steps, 8);
AT(genai_pager_stats, acquires, 16);
AT(genai_pager_stats, copies, 24);
AT(genai_pager_stats, copy_bytes, 32);

SIZE(genai_pager_ops, 120);
AT(genai_pager_ops, size, 0);
AT(genai_pager_ops, version, 4);
AT(genai_pager_ops, reserved, 6);
AT(genai_pager_ops, caps, 8);
AT(genai_pager_ops, open, 16);
AT(genai_pager_ops, close, 24);
AT(genai_pager_ops, add, 32);
AT(genai_pager_ops, seal, 40);
AT(genai_pager_ops, step_begin, 48);
AT(genai_pager_ops, acquire, 56);
AT(genai_pager_ops, release, 64);
AT(genai_pager_ops, step_end, 72);
AT(genai_pager_ops, reset, 80);
AT(genai_pager_ops, stats, 88);
AT(genai_pager_ops, replay_begin, 96);
AT(genai_pager_ops, resident, 104);
AT(genai_pager_ops, plan, 112);

SIZE(genai_pager_api, 24);
AT(genai_pager_api, ops, 0);
AT(genai_pager_api, pager, 8);
AT(genai_pager_api, self, 16);

SIZE(genai_exec_op, 24);
AT(genai_exec_op, domain, 0);
AT(genai_exec_op, op, 8);
AT(genai_exec_op, since, 16);

SIZE(genai_exec_caps, 40);
AT(genai_exec_caps, size, 0);
AT(genai_exec_caps, flags, 4);
AT(genai_exec_caps, device_kind, 8);
AT(genai_exec_caps, n_ops, 24);
AT(genai_exec_caps, op_stride, 28);
AT(genai_exec_caps, ops, 32);

SIZE(genai_plan_options, 56);
AT(genai_plan_options, size, 0);
AT(genai_plan_options, flags, 4);
AT(genai_plan_options, stream, 8);
AT(genai_plan_options, barrier, 16);
AT(genai_plan_options, pager, 24);
AT(genai_plan_options, max_inputs, 32);
AT(genai_plan_options, n_max_inputs, 40);
AT(genai_plan_options, n_repeated, 44);
AT(genai_plan_options, repeated, 48);

SIZE(genai_visit, 80);
AT(genai_visit, size, 0);
AT(genai_visit, tensor, 4);
AT(genai_visit, first_node, 8);
AT(genai_visit, last_node, 12);
AT(genai_visit, flags, 16);
AT(genai_visit, group, 20);
AT(genai_visit, rows, 24);
AT(genai_visit, device_bytes, 32);
AT(genai_visit, fill, 40);
AT(genai_visit, fill_ctx, 48);
AT(genai_visit, units_before, 56);
AT(genai_visit, units_after, 60);
AT(genai_visit, bytes_before, 64);
AT(genai_visit, work_bytes, 72);

SIZE(genai_visit_page, 24);
AT(genai_visit_page, size, 0);
AT(genai_visit_page, visit, 4);
AT(genai_visit_page, row_begin, 8);
AT(genai_visit_page, row_end, 16);

SIZE(genai_exec_stats, 496);
AT(genai_exec_stats, size, 0);
AT(genai_exec_stats, n_fallbacks, 4);
AT(genai_exec_stats, steps, 8);
AT(genai_exec_stats, captures, 16);
AT(genai_exec_stats, replays, 24);
AT(genai_exec_stats, host_nodes, 32);
AT(genai_exec_stats, device_bytes, 40);
AT(genai_exec_stats, fallbacks, 48);

SIZE(genai_executor_ops, 88);
AT(genai_executor_ops, size, 0);
AT(genai_executor_ops, version, 4);
AT(genai_executor_ops, reserved, 6);
AT(genai_executor_ops, caps, 8);
AT(genai_executor_ops, plan_create, 16);
AT(genai_executor_ops, plan_visits, 24);
AT(genai_executor_ops, plan_set_pages, 32);
AT(genai_executor_ops, plan_destroy, 40);
AT(genai_executor_ops, bind_input, 48);
AT(genai_executor_ops, bind_output, 56);
AT(genai_executor_ops, output_shape, 64);
AT(genai_executor_ops, submit, 72);
AT(genai_executor_ops, stats, 80);

SIZE(genai_runtime_options, 48);
AT(genai_runtime_options, size, 0);
AT(genai_runtime_options, flags, 4);
AT(genai_runtime_options, config_path, 8);
AT(genai_runtime_options, sets, 16);
AT(genai_runtime_options, n_sets, 24);
AT(genai_runtime_options, reserved, 28);
AT(genai_runtime_options, log, 32);
AT(genai_runtime_options, log_ctx, 40);

SIZE(genai_model_options, 24);
AT(genai_model_options, size, 0);
AT(genai_model_options, flags, 4);
AT(genai_model_options, progress, 8);
AT(genai_model_options, progress_ctx, 16);

SIZE(genai_engine_options, 24);
AT(genai_engine_options, size, 0);
AT(genai_engine_options, flags, 4);
AT(genai_engine_options, max_sequences, 8);
AT(genai_engine_options, block_positions, 12);
AT(genai_engine_options, max_blocks, 16);
AT(genai_engine_options, max_requests, 20);

SIZE(genai_engine_info, 40);
AT(genai_engine_info, size, 0);
AT(genai_engine_info, packed, 4);
AT(genai_engine_info, max_sequences, 8);
AT(genai_engine_info, block_positions, 12);
AT(genai_engine_info, blocks, 16);
AT(genai_engine_info, reserved, 20);
AT(genai_engine_info, context, 24);
AT(genai_engine_info, why, 32);

SIZE(genai_bias, 16);
AT(genai_bias, id, 0);
AT(genai_bias, bias, 8);
AT(genai_bias, reserved, 12);

SIZE(genai_request, 144);
AT(genai_request, size, 0);
AT(genai_request, flags, 4);
AT(genai_request, ids, 8);
AT(genai_request, n_ids, 16);
AT(genai_request, text, 24);
AT(genai_request, text_bytes, 32);
AT(genai_request, sampling, 40);
AT(genai_request, n, 48);
AT(genai_request, n_top, 52);
AT(genai_request, max_tokens, 56);
AT(genai_request, min_tokens, 64);
AT(genai_request, stop_ids, 72);
AT(genai_request, n_stop_ids, 80);
AT(genai_request, stops, 88);
AT(genai_request, n_stops, 96);
AT(genai_request, bias, 104);
AT(genai_request, n_bias, 112);
AT(genai_request, priority, 120);
AT(genai_request, deadline_ms, 124);
AT(genai_request, salt, 128);
AT(genai_request, user, 136);

SIZE(genai_top, 16);
AT(genai_top, id, 0);
AT(genai_top, logprob, 8);
AT(genai_top, reserved, 12);

SIZE(genai_event, 120);
AT(genai_event, size, 0);
AT(genai_event, kind, 4);
AT(genai_event, request, 8);
AT(genai_event, user, 16);
AT(genai_event, choice, 24);
AT(genai_event, finish, 28);
AT(genai_event, id, 32);
AT(genai_event, text, 40);
AT(genai_event, text_bytes, 48);
AT(genai_event, logprob, 56);
AT(genai_event, n_top, 60);
AT(genai_event, top, 64);
AT(genai_event, n_prompt, 72);
AT(genai_event, n_new, 80);
AT(genai_event, n_cached, 88);
AT(genai_event, stop, 96);
AT(genai_event, error, 104);
AT(genai_event, code, 112);
AT(genai_event, last, 116);

SIZE(genai_engine_stats, 112);
AT(genai_engine_stats, size, 0);
AT(genai_engine_stats, healthy, 4);
AT(genai_engine_stats, waiting, 8);
AT(genai_engine_stats, running, 12);
AT(genai_engine_stats, blocks, 16);
AT(genai_engine_stats, blocks_used, 20);
AT(genai_engine_stats, blocks_cached, 24);
AT(genai_engine_stats, reserved, 28);
AT(genai_engine_stats, device_errors, 32);
AT(genai_engine_stats, submitted, 40);
AT(genai_engine_stats, finished, 48);
AT(genai_engine_stats, steps, 56);
AT(genai_engine_stats, rows, 64);
AT(genai_engine_stats, padded_rows, 72);
AT(genai_engine_stats, prompt_tokens, 80);
AT(genai_engine_stats, cached_tokens, 88);
AT(genai_engine_stats, new_tokens, 96);
AT(genai_engine_stats, preemptions, 104);

SIZE(genai_chat_options, 24);
AT(genai_chat_options, size, 0);
AT(genai_chat_options, flags, 4);
AT(genai_chat_options, now, 8);
AT(genai_chat_options, utc_offset_s, 16);
AT(genai_chat_options, reserved, 20);

SIZE(genai_sampling, 64);
AT(genai_sampling, size, 0);
AT(genai_sampling, do_sample, 4);
AT(genai_sampling, temperature, 8);
AT(genai_sampling, top_p, 12);
AT(genai_sampling, min_p, 16);
AT(genai_sampling, repetition_penalty, 20);
AT(genai_sampling, presence_penalty, 24);
AT(genai_sampling, frequency_penalty, 28);
AT(genai_sampling, top_k, 32);
AT(genai_sampling, no_repeat_ngram, 40);
AT(genai_sampling, min_length, 48);
AT(genai_sampling, seed, 56);

SIZE(genai_model_info, 144);
AT(genai_model_info, size, 0);
AT(genai_model_info, vocab_size, 4);
AT(genai_model_info, model_context, 8);
AT(genai_model_info, context, 16);
AT(genai_model_info, weights_bytes, 24);
AT(genai_model_info, kv_bytes_per_position, 32);
AT(genai_model_info, n_eos, 40);
AT(genai_model_info, all_logits, 44);
AT(genai_model_info, eos, 48);
AT(genai_model_info, bos, 56);
AT(genai_model_info, pad, 64);
AT(genai_model_info, type, 72);
AT(genai_model_info, do_sample, 80);
AT(genai_model_info, temperature, 84);
AT(genai_model_info, top_p, 88);
AT(genai_model_info, repetition_penalty, 92);
AT(genai_model_info, top_k, 96);
AT(genai_model_info, max_length, 104);
AT(genai_model_info, min_length, 112);
AT(genai_model_info, no_repeat_ngram, 120);
AT(genai_model_info, chunk, 128);
AT(genai_model_info, any_cut, 136);
AT(genai_model_info, reserved, 140);

SIZE(genai_fit, 184);
AT(genai_fit, size, 0);
AT(genai_fit, ring_slots, 4);
AT(genai_fit, limit_bytes, 8);
AT(genai_fit, budget_bytes, 16);
AT(genai_fit, context, 24);
AT(genai_fit, weights_bytes, 32);
AT(genai_fit, pinned_bytes, 40);
AT(genai_fit, ring_bytes, 48);
AT(genai_fit, in_place_bytes, 56);
AT(genai_fit, streamed_bytes, 64);
AT(genai_fit, cache_bytes, 72);
AT(genai_fit, plan_bytes, 80);
AT(genai_fit, session_bytes, 88);
AT(genai_fit, driver_bytes, 96);
AT(genai_fit, device_bytes, 104);
AT(genai_fit, least_bytes, 112);
AT(genai_fit, host_bytes, 120);
AT(genai_fit, step_ns, 128);
AT(genai_fit, serial_ns, 136);
AT(genai_fit, resident_ns, 144);
AT(genai_fit, read_bytes, 152);
AT(genai_fit, read_in_place_bytes, 160);
AT(genai_fit, page_bytes, 168);
AT(genai_fit, async, 176);
AT(genai_fit, reserved, 180);

SIZE(genai_stats, 840);
AT(genai_stats, size, 0);
AT(genai_stats, n_fallbacks, 4);
AT(genai_stats, executor, 8);
AT(genai_stats, stream, 72);
AT(genai_stats, barrier, 136);
AT(genai_stats, pager, 200);
AT(genai_stats, host_peak_bytes, 264);
AT(genai_stats, host_pinned_bytes, 272);
AT(genai_stats, device_limit_bytes, 280);
AT(genai_stats, weight_budget_bytes, 288);
AT(genai_stats, device_peak_bytes, 296);
AT(genai_stats, weights_bytes, 304);
AT(genai_stats, pinned_bytes, 312);
AT(genai_stats, ring_bytes, 320);
AT(genai_stats, in_place_bytes, 328);
AT(genai_stats, streamed_bytes_per_token, 336);
AT(genai_stats, h2d_bytes, 344);
AT(genai_stats, captures, 352);
AT(genai_stats, replays, 360);
AT(genai_stats, simulated_ns, 368);
AT(genai_stats, fallbacks, 376);
AT(genai_stats, load_s, 824);
AT(genai_stats, device_used_bytes, 832);

IS(GENAI_OK, 0);
IS(GENAI_PENDING, 1);
IS(GENAI_E_INVAL, -1);
IS(GENAI_E_NOMEM, -2);
IS(GENAI_E_IO, -3);
IS(GENAI_E_FORMAT, -4);
IS(GENAI_E_UNSUPPORTED, -5);
IS(GENAI_E_CONFIG, -6);
IS(GENAI_E_MODULE, -7);
IS(GENAI_E_ABI, -8);
IS(GENAI_E_NODEVICE, -9);
IS(GENAI_E_DEVICE, -10);
IS(GENAI_E_LIMIT, -11);
IS(GENAI_E_STATE, -12);
IS(GENAI_E_BUSY, -13);
IS(GENAI_E_DEADLINE, -14);
IS(GENAI_E_NOSYS, -15);
IS(GENAI_E_FORKED, -16);
IS(GENAI_E_INTERRUPTED, -17);
IS(GENAI_E_NOTFOUND, -18);
IS(GENAI_E_ORDER, -19);
IS(GENAI_NONE, 0xffffffffu);
IS(GENAI_DT_NONE, 0);
IS(GENAI_DT_F32, 1);
IS(GENAI_DT_U8, 2);
IS(GENAI_DT_I8, 3);
IS(GENAI_DT_U16, 4);
IS(GENAI_DT_I16, 5);
IS(GENAI_DT_I32, 6);
IS(GENAI_DT_I64, 7);
IS(GENAI_DT_STRING, 8);
IS(GENAI_DT_BOOL, 9);
IS(GENAI_DT_F16, 10);
IS(GENAI_DT_F64, 11);
IS(GENAI_DT_U32, 12);
IS(GENAI_DT_U64, 13);
IS(GENAI_DT_BF16, 16);
IS(GENAI_DT_U4, 21);
IS(GENAI_DT_I4, 22);
IS(GENAI_MAX_RANK, 16);
IS(GENAI_MODULE_MAGIC, UINT64_C(0x314d494147454e47));
IS(GENAI_LOG_ERROR, 1);
IS(GENAI_LOG_WARN, 2);
IS(GENAI_LOG_INFO, 3);
IS(GENAI_LOG_DEBUG, 4);
IS(GENAI_LOG_TRACE, 5);
IS(GENAI_RANGE_ALL_BYTES, UINT64_MAX);
IS(GENAI_KEY_STR, 1u);
IS(GENAI_KEY_U64, 2u);
IS(GENAI_KEY_BOOL, 3u);
IS(GENAI_KEY_BYTES, 4u);
IS(GENAI_MEM_DEVICE, 1u);
IS(GENAI_MEM_HOST_PINNED, 2u);
IS(GENAI_READ, 1u);
IS(GENAI_WRITE, 2u);
IS(GENAI_SPARSE, 4u);
IS(GENAI_COPY_H2D, 1u);
IS(GENAI_COPY_D2H, 2u);
IS(GENAI_COPY_D2D, 3u);
IS(GENAI_STREAM_CAP_RECORD, 1u);
IS(GENAI_STREAM_CAP_NATIVE, 2u);
IS(GENAI_STREAM_CAP_IN_PLACE, 4u);
IS(GENAI_STREAM_CAP_RESERVE, 8u);
IS(GENAI_STREAM_CAP_SHARED, 16u);
IS(GENAI_STREAM_CAP_RATES, 32u);
IS(GENAI_VALUE_INPUT, 1u);
IS(GENAI_VALUE_OUTPUT, 2u);
IS(GENAI_VALUE_OUTER, 4u);
IS(GENAI_ATTR_INT, 1u);
IS(GENAI_ATTR_FLOAT, 2u);
IS(GENAI_ATTR_STRING, 3u);
IS(GENAI_ATTR_TENSOR, 4u);
IS(GENAI_ATTR_GRAPH, 5u);
IS(GENAI_ATTR_INTS, 6u);
IS(GENAI_ATTR_FLOATS, 7u);
IS(GENAI_ATTR_STRINGS, 8u);
IS(GENAI_PAGE_NO_STREAM, 1u);
IS(GENAI_VISIT_EXPERT, 1u);
IS(GENAI_PLACE_DEVICE, 1u);
IS(GENAI_PLACE_IN_PLACE, 2u);
IS(GENAI_PLACE_HOST, 3u);
IS(GENAI_PAGER_CAP_STABLE, 1u);
IS(GENAI_PAGER_CAP_IN_PLACE, 2u);
IS(GENAI_PAGER_CAP_EXPERT, 4u);
IS(GENAI_PAGER_CAP_ASYNC, 8u);
IS(GENAI_EXEC_CAP_RECORDS, 1u);
IS(GENAI_EXEC_CAP_ROWS_EXACT, 2u);
IS(GENAI_WEIGHT_GATHER, 1u);
IS(GENAI_WEIGHT_ROWS, 2u);
IS(GENAI_WEIGHT_FILL_PARTS, 4u);
IS(GENAI_WEIGHT_ANY_ROWS, 8u);
IS(GENAI_MODEL_ALL_LOGITS, 1u);
IS(GENAI_MODEL_FIT, 2u);
IS(GENAI_TOK_NO_SPECIAL, 1u);
IS(GENAI_TOK_SPECIALS_AS_TEXT, 2u);
IS(GENAI_TOK_KEEP_SPECIAL, 4u);
IS(GENAI_CHAT_CONTINUE, 1u);
IS(GENAI_CHAT_NO_ANSWER, 2u);
IS(GENAI_CHAT_NOW, 4u);
IS(GENAI_REQUEST_ECHO, 1u);
IS(GENAI_REQUEST_IGNORE_EOS, 2u);
IS(GENAI_REQUEST_KEEP_SPECIAL, 4u);
IS(GENAI_REQUEST_LOGPROBS, 8u);
IS(GENAI_REQUEST_NO_SPECIAL, 16u);
IS(GENAI_REQUEST_NO_CACHE, 32u);
IS(GENAI_EVENT_PROMPT, 1u);
IS(GENAI_EVENT_TOKEN, 2u);
IS(GENAI_EVENT_DONE, 3u);
IS(GENAI_FINISH_EOS, 1u);
IS(GENAI_FINISH_STOP, 2u);
IS(GENAI_FINISH_LENGTH, 3u);
IS(GENAI_FINISH_CANCELLED, 4u);
IS(GENAI_FINISH_DEADLINE, 5u);
IS(GENAI_FINISH_ERROR, 6u);

int main(void)
{
	puts("ok 1 - sizes, offsets and constants\n1..1");
	return 0;
}
