//! `atoll_fuzz::nfs` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atoll_fuzz::nfs(bytes));
