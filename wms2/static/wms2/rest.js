// What Swagger's page leaves out: boxes that scroll are reached by keys, and the button that closes its window has a name.
"use strict";
(function () {
  function complete() {
    document.querySelectorAll(".swagger-ui pre:not([tabindex]), .swagger-ui .microlight:not([tabindex])").forEach((box) => { box.tabIndex = 0; });
    document.querySelectorAll(".swagger-ui .close-modal:not([aria-label])").forEach((button) => { button.setAttribute("aria-label", "Close"); });
  }
  new MutationObserver(complete).observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });
})();
