"""The commands themselves: parse, call one service, render."""
