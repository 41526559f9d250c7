//! What a cluster knows of itself.
