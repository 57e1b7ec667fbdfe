//! What can go wrong with a heap.

/// Why a heap could not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// No free part is large enough.
    #[error("the shared heap has no {0} bytes left in one piece; reserve more (PAGEMESH_HEAP)")]
    Full(u64),
    /// Not an address that the heap gave, or it was freed already.
    #[error("this is not the address of a block of the shared heap, or it was freed already")]
    NotTaken,
    /// The processes do not agree on what the heap shall be like.
    #[error(
        "this process wants a shared heap of another size or policy than rank 0; start all of \
         them with the same options"
    )]
    Disagree,
    /// Some process has something else at every address that was tried.
    #[error(
        "there is no address at which all processes have room for the shared heap; reserve less"
    )]
    NoAddress,
    /// Somebody stored nonsense where the heap keeps its books.
    #[error("the books of the shared heap are damaged: some process stored beyond its memory")]
    Damaged,
}
