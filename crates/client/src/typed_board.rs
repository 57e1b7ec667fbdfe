//! Boards whose states are values of one type.

use std::marker::PhantomData;
use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Access, Board, BoardOptions, Error, Mesh, Result, State};

/// A [`Board`] whose states are values of a plain type: numbers, arrays of them, or structs that
/// derive `FromBytes`, `IntoBytes` and `Immutable` of the crate `zerocopy` (any bytes are a value,
/// and there is no padding). The bytes are those of the memory, as C and numpy have them.
///
/// ```no_run
/// # fn main() -> pagemesh::Result<()> {
/// use pagemesh::{BoardOptions, Mesh, TypedBoard};
///
/// let mesh = Mesh::connect()?;
/// let mut board = TypedBoard::<[f64; 3]>::create(&mesh, "robot", BoardOptions::default())?;
/// board.publish(&[1.0, 2.0, 3.0])?;
/// if let Some((position, state)) = board.read()? {
///     println!("{position:?}, number {}, {:?} old", state.number, state.age());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TypedBoard<T> {
    board: Board,
    _type: PhantomData<fn(T) -> T>,
}

impl<T: FromBytes + IntoBytes + Immutable> TypedBoard<T> {
    /// As [`Board::create`], for states of this type.
    ///
    /// # Errors
    /// As there; a type without bytes is [`Error::Invalid`].
    pub fn create(mesh: &Mesh, name: &str, options: BoardOptions) -> Result<Self> {
        Ok(Self {
            board: Board::create(mesh, name, size_of::<T>(), options)?,
            _type: PhantomData,
        })
    }

    /// As [`Board::open`].
    ///
    /// # Errors
    /// As there; [`Error::Invalid`] if the board is for smaller states than this type.
    pub fn open(mesh: &Mesh, name: &str, access: Access) -> Result<Self> {
        let board = Board::open(mesh, name, access)?;
        if board.size() < size_of::<T>() {
            return Err(OTHER);
        }
        Ok(Self {
            board,
            _type: PhantomData,
        })
    }

    /// As [`Board::publish`].
    ///
    /// # Errors
    /// As there.
    pub fn publish(&mut self, value: &T) -> Result<u64> {
        self.board.publish(value.as_bytes())
    }

    /// As [`Board::read`]; the state's bytes are those of the value.
    ///
    /// # Errors
    /// As there; [`Error::Invalid`] if a process published something of another size.
    pub fn read(&mut self) -> Result<Option<(T, State)>> {
        let Some(state) = self.board.read()? else {
            return Ok(None);
        };
        let value = T::read_from_bytes(&state.bytes).map_err(|_| OTHER)?;
        Ok(Some((value, state)))
    }

    /// As [`Board::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self, newer_than: u64, timeout: Option<Duration>) -> Result<u64> {
        self.board.wait(newer_than, timeout)
    }

    /// The board under it.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }
}

const OTHER: Error = Error::Invalid("the board's states are not values of this type");
