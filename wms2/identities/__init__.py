"""Who a user is and what they may do: doors find the person and the grants, ``grants`` is what all of WMS2 asks."""
