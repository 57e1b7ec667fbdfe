//! Errors of a shared heap.

/// Why a heap call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// No free part is large enough.
    #[error("the shared heap has no {0} bytes left in one piece; reserve more (PAGEMESH_HEAP)")]
    Full(u64),
    /// Not an address that the heap gave, or it was freed already.
    #[error("this is not the address of a block of the shared heap, or it was freed already")]
    NotTaken,
    /// The processes of the job passed different heap options.
    #[error(
        "this process wants a shared heap of another size or policy than rank 0; start all of \
         them with the same options"
    )]
    Disagree,
    /// At every candidate address, some process has another mapping.
    #[error(
        "there is no address at which all processes have room for the shared heap; reserve less"
    )]
    NoAddress,
    /// A process stored garbage in the heap's administration pages.
    #[error("the books of the shared heap are damaged: some process stored beyond its memory")]
    Damaged,
}
