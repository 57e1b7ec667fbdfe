//! Programs that use PageMesh as any other program would: through the library.

pub(crate) mod centrality;
