//! The simulated disk.
