//! Diffs under reduction rules, made from the twins of a store and merged from its diffs, like the
//! store's own methods.

use crate::{apply_with, encode_with};
use pagemesh_diff::Page;
use pagemesh_twins::{DiffKey, Error, Keep, Slots, Store};
use pagemesh_wire::peer::Rule;

/// Makes a diff of this node, as [`Store::capture`]; returns the number of changed bytes. If there
/// are rules, the page must not be stored to meanwhile.
///
/// # Errors
/// If there is no twin and the diff was not made before, or if the storage is full.
pub fn capture<S: Slots>(
    store: &mut Store<S>,
    key: DiffKey,
    now: &Page,
    (keep, rules): (Keep, &[Rule]),
) -> Result<usize, Error> {
    if rules.is_empty() {
        return store.capture(key, now, keep);
    }
    if !store.has_diff(key) {
        let twin = store.twin_of(key.at());
        let twin: Option<&Page> = twin.and_then(|twin| twin.try_into().ok());
        let mut encoded = Vec::new();
        encode_with(
            rules,
            twin.ok_or(Error::NoTwin(key.at()))?,
            now,
            &mut encoded,
        );
        // Store the diff before the twin is updated: if the daemon ends here, its successor finds
        // the diff.
        store.insert(key, &encoded)?;
        if keep == Keep::Twin {
            store.twin(key.at(), now)?;
        }
    } else if keep == Keep::Twin {
        // The previous daemon made it, from a page that may have been written since. If it ended
        // before it replaced a twin of zeros, there is none.
        if store.twin_of(key.at()).is_none() {
            store.twin_of_zeros(key.at())?;
        }
        update_twin(store, key, rules)?;
    }
    if keep == Keep::Nothing {
        store.drop_twin(key.at());
    }
    Ok(store.checked(key)?.len())
}

/// Applies a diff to the twin of its page, if that has one, as [`Store::update_twin`].
///
/// # Errors
/// If it is not in the store.
pub fn update_twin<S: Slots>(
    store: &mut Store<S>,
    key: DiffKey,
    rules: &[Rule],
) -> Result<(), Error> {
    if rules.is_empty() {
        return store.update_twin(key);
    }
    let twin = store.twin_of(key.at());
    let Some(mut twin): Option<Page> = twin.and_then(|twin| twin.try_into().ok()) else {
        return Ok(());
    };
    apply_with(rules, &store.checked(key)?, &mut twin);
    store.twin(key.at(), &twin)
}

/// Applies diffs to a page in the order given, as [`Store::merge`].
///
/// # Errors
/// If a diff is not in the store; some of the others may have been applied to the page.
pub fn merge<S: Slots>(
    store: &mut Store<S>,
    keys: impl Iterator<Item = DiffKey> + Clone,
    rules: &[Rule],
    page: &mut Page,
) -> Result<(), Error> {
    if rules.is_empty() {
        return store.merge(keys, page);
    }
    for key in keys {
        apply_with(rules, &store.checked(key)?, page);
    }
    Ok(())
}
