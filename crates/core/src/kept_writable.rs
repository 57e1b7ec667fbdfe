//! Pages of which the driver sees whether they were stored to.

use pagemesh_wire::PageIndex;

/// Pages that the driver compares with their twins before a barrier is reached, and of which it
/// reports the equal ones by [`Input::Untouched`](crate::Input::Untouched).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptWritable {
    /// Pages that were only guessed to be stored to. Those that were not are protected when they are
    /// reported. A second look at them, reported with the others, is final: their twins are dropped.
    pub guessed: Vec<PageIndex>,
    /// Pages that were stored to in other intervals.
    pub others: Vec<PageIndex>,
}

impl KeptWritable {
    /// Whether there is nothing to look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.guessed.is_empty() && self.others.is_empty()
    }

    /// Looks at the pages. Returns the equal ones; `report` hands the guessed ones among them to the
    /// node before they are looked at once more.
    ///
    /// # Errors
    ///
    /// Those of `report`.
    pub fn look<D, E>(
        self,
        driver: &mut D,
        is_untouched: impl Fn(&D, PageIndex) -> bool,
        report: impl FnOnce(&mut D, Vec<PageIndex>) -> Result<(), E>,
    ) -> Result<Vec<PageIndex>, E> {
        let Self {
            mut guessed,
            others,
        } = self;
        guessed.retain(|page| is_untouched(driver, *page));
        if !guessed.is_empty() {
            report(driver, guessed.clone())?;
        }
        guessed.extend(others);
        guessed.retain(|page| is_untouched(driver, *page));
        Ok(guessed)
    }
}
