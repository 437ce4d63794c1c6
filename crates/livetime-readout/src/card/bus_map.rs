//! Bus addresses of pages: what a driver writes into a request register.
//!
//! Pages of a link are numbered; cards know bus addresses of 32 bits. A [`BusMap`] says how the two
//! belong together. It allocates nothing: that is [`crate::card::PageMemory`]'s business.

/// Pages in a row on the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusMap {
    /// Bus address of the first page.
    pub base: u32,
    /// Number of the first page.
    pub first_page: u32,
    /// Number of pages.
    pub pages: u32,
    /// Bytes from one page to the next, a multiple of 4.
    pub page_bytes: u32,
}

impl BusMap {
    /// The bus address of a page; `None` if it is not one of these.
    pub fn address(&self, page: u32) -> Option<u32> {
        let index = page.checked_sub(self.first_page)?;
        (index < self.pages).then(|| self.base + index * self.page_bytes)
    }

    /// The page at a bus address; `None` unless one begins there.
    pub fn page(&self, address: u32) -> Option<u32> {
        let offset = address.checked_sub(self.base)?;
        let index = offset / self.page_bytes.max(1);
        let begins = index * self.page_bytes == offset && index < self.pages;
        begins.then(|| self.first_page + index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_addresses_go_both_ways_and_others_are_refused() {
        let map = BusMap {
            base: 0x1000_0000,
            first_page: 5,
            pages: 3,
            page_bytes: 4096,
        };
        assert_eq!(map.address(6), Some(0x1000_1000));
        for page in 5..8 {
            assert_eq!(map.page(map.address(page).unwrap()), Some(page));
        }
        for page in [4, 8] {
            assert_eq!(map.address(page), None);
        }
        for address in [0x0FFF_F000, 0x1000_0004, 0x1000_3000, u32::MAX] {
            assert_eq!(map.page(address), None);
        }
    }
}
