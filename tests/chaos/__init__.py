"""What the machine under Holdfast may do to it: lose power, fill up, fail to read, write or sync."""
