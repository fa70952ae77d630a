// Keeps a page up to date: fetches its live part and replaces what changed.
//
// When to fetch the stream of events says: one for all tabs of this browser, held by the tab that has the lock, which passes on what
// comes. What no event tells is looked at every half minute. Without a stream the page asks every few seconds, and never while hidden.
//
// Only elements with an id that begins with "part-" are replaced, each by the one of the same id, so that forms outside of them keep
// what is being typed. Opened and closed <details> stay as the reader left them, and the keyboard's focus stays where it was.
"use strict";
(function () {
  const live = document.getElementById("live");
  const pulse = document.getElementById("pulse");
  if (!live) return;
  const everyMs = 1000 * Number(live.dataset.liveSeconds || 5);
  const slowestMs = 60000;
  const quietMs = 30000;
  const address = document.body.dataset.stream;
  const concerned = live.dataset.liveRequest;
  const channel = address && window.EventSource && navigator.locks && window.BroadcastChannel ? new BroadcastChannel("wms2-stream") : null;
  let waitMs = everyMs;
  let timer = 0;
  let lookedAt = Date.now();
  let awaited = false; // a look that an event has asked for
  let streamed = false; // a stream is open, here or in another tab
  let source = null;
  let leave = null;

  function say(text, bad) {
    if (pulse && pulse.textContent !== text) pulse.textContent = text;
    if (pulse) pulse.classList.toggle("late", Boolean(bad));
  }

  // Green says that what is shown goes on: the server answers, and the life cycle runs.
  function sayStanding() {
    const title = document.getElementById("part-title");
    const undriven = title ? title.dataset.undriven : "";
    say(undriven || "live", Boolean(undriven));
  }

  function opened(part) {
    const found = {};
    part.querySelectorAll("details[id]").forEach((one) => { found[one.id] = one.open; });
    return found;
  }

  function replace(part, fresh) {
    const wasOpen = opened(part);
    const scrolled = {};
    part.querySelectorAll("details[id]").forEach((one) => {
      const box = one.querySelector("pre");
      if (box) scrolled[one.id] = box.scrollHeight - box.scrollTop - box.clientHeight < 8 ? -1 : box.scrollTop;
    });
    fresh.querySelectorAll("details[id]").forEach((one) => { if (one.id in wasOpen) one.open = wasOpen[one.id]; });
    document.dispatchEvent(new CustomEvent("wms2:fresh", { detail: { part: part, fresh: fresh } }));
    if (fresh.outerHTML === part.outerHTML) return;
    part.querySelectorAll("input[type=checkbox][id]:checked").forEach((one) => {
      const again = fresh.querySelector("#" + CSS.escape(one.id));
      if (again) again.checked = true;
    });
    const active = part.contains(document.activeElement) ? document.activeElement : null;
    const address = active && active.getAttribute("href");
    const folded = active && active.tagName === "SUMMARY" && active.parentNode.id;
    part.replaceWith(fresh);
    fresh.querySelectorAll("details[id]").forEach((one) => {
      const box = one.querySelector("pre");
      if (box && one.id in scrolled) box.scrollTop = scrolled[one.id] < 0 ? box.scrollHeight : scrolled[one.id];
    });
    if (folded && fresh.querySelector("#" + folded)) fresh.querySelector("#" + folded + " > summary").focus({ preventScroll: true });
    if (address) {
      const again = Array.from(fresh.querySelectorAll("a[href]")).find((link) => link.getAttribute("href") === address);
      if (again) again.focus({ preventScroll: true });
    }
  }

  // A part that appears or disappears: the whole is taken over, unless the user is typing in it.
  function sameParts(parts, fresh) {
    const names = (root) => Array.from(root.querySelectorAll("[id^='part-']")).map((one) => one.id).join(" ");
    return names(parts) === names(fresh);
  }

  function show(text) {
    const fresh = document.createElement("div");
    fresh.append(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
    if (!sameParts(live, fresh)) {
      const typing = live.contains(document.activeElement) && /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
      if (typing) return;
      live.replaceChildren(...fresh.childNodes);
    } else {
      live.querySelectorAll("[id^='part-']").forEach((part) => replace(part, fresh.querySelector("#" + part.id)));
    }
    const title = document.getElementById("part-title");
    if (title && document.title !== title.dataset.title) document.title = title.dataset.title;
  }

  async function look() {
    if (document.hidden) return;
    lookedAt = Date.now();
    try {
      const answer = await fetch(window.location.href, { headers: { "X-Wms2-Part": "live" }, credentials: "same-origin", redirect: "manual" });
      if (answer.type === "opaqueredirect") { window.location.reload(); return; }
      if (!answer.ok && answer.status !== 400) throw new Error("answer " + answer.status);
      show(await answer.text());
      sayStanding();
      waitMs = everyMs;
    } catch (error) {
      say("not up to date: the server does not answer", true);
      waitMs = Math.min(slowestMs, waitMs * 2);
    }
  }

  async function again() {
    window.clearTimeout(timer);
    awaited = false;
    await look();
    window.clearTimeout(timer);
    timer = window.setTimeout(again, streamed && waitMs === everyMs ? quietMs : waitMs);
  }

  function hear(news) {
    if (news.asks) {
      if (source && source.readyState === EventSource.OPEN) channel.postMessage({ open: true });
    } else if ("open" in news) {
      if (news.open !== streamed) { streamed = news.open; again(); }
    } else if (!awaited && !(concerned && news.request && news.request !== concerned)) {
      awaited = true;
      window.clearTimeout(timer);
      timer = window.setTimeout(again, Math.max(300, lookedAt + everyMs - Date.now()));
    }
  }

  function tell(news) {
    channel.postMessage(news);
    hear(news);
  }

  // Refused, as after the sign-out: tried again, but not for a page that is not seen.
  function reopen() {
    if (!leave) return;
    if (document.hidden) document.addEventListener("visibilitychange", reopen, { once: true });
    else open();
  }

  function open() {
    tell({ open: false }); // what came since another tab's was closed no tab has heard of
    source = new EventSource(address);
    source.onopen = () => tell({ open: true });
    source.onmessage = (event) => tell({ request: JSON.parse(event.data).request });
    source.onerror = () => {
      tell({ open: false });
      if (source.readyState === EventSource.CLOSED) window.setTimeout(reopen, quietMs);
    };
  }

  // Not before the page has stood for a while: who leafs through pages opens no stream for each.
  function join() {
    navigator.locks.request("wms2-stream", () => new Promise((release) => { leave = release; open(); }));
  }

  function part() {
    if (!leave) return;
    source.close();
    leave();
    leave = null;
  }

  if (channel) {
    channel.onmessage = (message) => hear(message.data);
    channel.postMessage({ asks: true });
    window.setTimeout(join, everyMs);
    window.addEventListener("pagehide", part);
    window.addEventListener("pageshow", (event) => { if (event.persisted) join(); });
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) again(); });
  sayStanding();
  timer = window.setTimeout(again, everyMs);
})();
