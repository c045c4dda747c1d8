"""Private text on its way in: readers, units, the keyed partition, the store."""
