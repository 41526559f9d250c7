//! Bodies of files: who may be inside, what is done there, and checkpoints. Never reads a body itself.

pub(crate) mod checkpoint;
pub(crate) mod data;
pub(crate) mod gate;
pub(crate) mod shape;
pub(crate) mod space;
