//! `atoll_fuzz::node_file` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atoll_fuzz::node_file(bytes));
