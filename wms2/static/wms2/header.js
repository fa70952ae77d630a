// What the header does in a browser: the key "/" goes to the search box, moments are shown in UTC or in the browser's own time, and
// boxes with data-narrows narrow the list that they name, boxes that scroll are reached by keyboard. Without it all of that stays
// readable: UTC, whole lists.
"use strict";
(function () {
  const find = document.getElementById("find");
  const clock = document.getElementById("clock");
  const root = document.documentElement;
  const KEY = "wms2-clock";
  const MOMENT = /\b(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d)(:\d\d)? UTC\b/g;
  const texts = new WeakMap();

  document.addEventListener("keydown", (event) => {
    if (!find || event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    const typed = event.target.closest && event.target.closest("input, select, textarea, [contenteditable]");
    if (typed) return;
    event.preventDefault();
    find.focus();
    find.select();
  });

  document.querySelectorAll("input[data-narrows]").forEach((box) => {
    const lines = Array.from(document.querySelectorAll(box.dataset.narrows));
    box.parentNode.hidden = false;
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      lines.forEach((line) => { line.hidden = !words.every((word) => line.textContent.toLowerCase().includes(word)); });
      document.querySelectorAll("[data-narrowed]").forEach((group) => { group.hidden = !group.querySelector("li:not([hidden])"); });
    });
  });

  function kept() {
    try { return window.localStorage.getItem(KEY) === "local" ? "local" : "utc"; } catch (error) { return "utc"; }
  }

  function keep(value) {
    try { window.localStorage.setItem(KEY, value); } catch (error) { console.info("the clock is not kept: " + error.message); }
  }

  function inLocal(text) {
    return text.replace(MOMENT, (whole, year, month, day, hour, minute, second) => {
      const at = new Date(Date.UTC(year, month - 1, day, hour, minute, second ? second.slice(1) : 0));
      const two = (number) => String(number).padStart(2, "0");
      const away = -at.getTimezoneOffset();
      const zone = (away < 0 ? "-" : "+") + two(Math.floor(Math.abs(away) / 60)) + ":" + two(Math.abs(away) % 60);
      const days = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
      return days + " " + two(at.getHours()) + ":" + two(at.getMinutes()) + (second ? ":" + two(at.getSeconds()) : "") + " " + zone;
    });
  }

  // What a moment's text was in UTC is kept beside its node, so that switching back needs no other source.
  function shown(holder, now, write) {
    const before = texts.get(holder);
    const utc = before && before.local === now ? before.utc : now;
    const text = root.dataset.clock === "local" ? inLocal(utc) : utc;
    if (text !== utc) texts.set(holder, { utc: utc, local: text });
    if (text !== now) write(text);
  }

  function show(top) {
    const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
    for (let node = walker.currentNode; node; node = walker.nextNode()) {
      const parent = node.parentNode;
      if (node.nodeType !== Node.TEXT_NODE || (parent && /^(SCRIPT|STYLE|TEXTAREA|PRE|CODE)$/.test(parent.tagName))) continue;
      shown(node, node.data, (text) => { node.data = text; });
    }
    if (!top.querySelectorAll) return;
    const titled = Array.from(top.querySelectorAll("[title]"));
    if (top.title) titled.push(top);
    titled.forEach((one) => shown(one, one.title, (text) => { one.title = text; }));
  }

  function set(value) {
    root.dataset.clock = value;
    if (clock) clock.textContent = value === "local" ? "local time" : "UTC";
    show(document.body);
    document.dispatchEvent(new CustomEvent("wms2:clock", { detail: value }));
  }

  // Boxes that scroll sideways on a narrow screen can be reached and moved by keyboard.
  function reach() {
    document.querySelectorAll(".panel, .results, table.list.small").forEach((box) => {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else if (box.getAttribute("tabindex") === "0") box.removeAttribute("tabindex");
    });
  }

  // A part that may replace another is made like it, so that one that has not changed stays where it is.
  document.addEventListener("wms2:fresh", (event) => {
    if (root.dataset.clock === "local") show(event.detail.fresh);
    if (event.detail.part.tabIndex === 0) event.detail.fresh.tabIndex = 0;
  });

  // Parts that are replaced while the page is open, before they are painted.
  new MutationObserver((changes) => {
    reach();
    if (root.dataset.clock !== "local") return;
    changes.forEach((change) => change.addedNodes.forEach(show));
  }).observe(document.body, { childList: true, subtree: true });

  if (clock) {
    clock.hidden = false;
    clock.addEventListener("click", () => {
      const value = root.dataset.clock === "local" ? "utc" : "local";
      keep(value);
      set(value);
    });
  }
  set(kept());
  reach();
  window.addEventListener("resize", reach);
})();
